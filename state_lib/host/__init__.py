"""The process around tasks: Flight for executors, HTTP for people and monitors."""
