"""Applications side by side on the same brokers and hosts: what there is, and how one goes."""
