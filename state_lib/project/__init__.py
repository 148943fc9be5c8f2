"""``holdfast new``: a project of one's own, written from the files in ``template/``."""

from state_lib.project.write import write_project

__all__ = ["write_project"]
