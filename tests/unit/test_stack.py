"""The local stack's parts that need no server."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from stack import connect, etcd, install, java, kafka, packages, ports, postgres, process, properties
from stack.errors import StackError
from stack.home import Home, parse_env, render_env
from stack.paths import CHECKOUT, STACK_CONFIG
from stack.process import Identity
from stack.waiting import wait_until
from tests.support.poll import until  # noqa: F401
