"""Neutron's API for gunicorn, whose arguments Neutron must not read as its own."""
import sys

sys.argv = ["neutron-api"]

from neutron.wsgi.api import application  # noqa: E402,F401
