"""What hosts, clients and drivers agree on: markers, the wire, owners of tasks, keys as JSON."""
