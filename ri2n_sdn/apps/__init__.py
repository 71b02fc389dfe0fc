"""os-ken apps, thin: they send what `pipeline` and `weights` computed."""
