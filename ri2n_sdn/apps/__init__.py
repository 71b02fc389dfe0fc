"""The controller's os-ken apps. They send what `pipeline` and `weights` have computed."""
