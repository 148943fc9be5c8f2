"""Gathers the pages of the documentation's site; what can be made from the code is.

The site has the folders of the repository, so that a link holds in both.
"""
