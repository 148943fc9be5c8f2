"""Changelog topics: names and policy, creation and checks, the transactional writer, the reader."""
