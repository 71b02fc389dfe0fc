"""Weight strategies (one file each, one signature), and slot tables made from weights. All pure."""
