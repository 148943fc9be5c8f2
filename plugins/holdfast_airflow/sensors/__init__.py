"""Sensors: what waits for something to go wrong."""

from holdfast_airflow.sensors.store import StoreLostSensor

__all__ = ["StoreLostSensor"]
