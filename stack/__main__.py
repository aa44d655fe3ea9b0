"""`python3.11 -m stack ...`: the commands."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from stack import compose_secrets, install, process, servers, services
from stack.errors import StackError
from stack.home import Home
from stack.paths import DEFAULT_HOME
from stack.waiting import Stopwatch, say


def main(argv: list[str] | None = None) -> int:
    """Run one command; 1 and one clear message when it fails."""
    arguments = _parser().parse_args(argv)
    try:
        run(arguments)
    except StackError as error:
        say(f"stack: {error}")
        return 1
    except KeyboardInterrupt:
        say("stack: interrupted; what this command started is stopped")
        return 130
    return 0


def run(arguments: argparse.Namespace) -> None:
    """Dispatch to the parts."""
    home = Home(arguments.home)
    match arguments.command:
        case "install":
            install.install()
        case "up":
            _up(home, everything=arguments.all)
        case "down":
            watch = Stopwatch()
            services.down(home)
            servers.down(home, wipe=arguments.wipe)
            say(f"nothing of {home.path} runs ({watch.seconds:.1f} s)")
        case "status":
            _status(home)
        case "compose-secrets":
            compose_secrets.write()
        case one if arguments.name in servers.SERVERS:
            getattr(servers, one)(home, arguments.name)
        case "start":
            services.up(home, [arguments.name])
        case "restart":
            services.stop(home, arguments.name)
            services.up(home, [arguments.name])
        case one:
            getattr(services, one)(home, arguments.name)


def _up(home: Home, *, everything: bool) -> None:
    watch = Stopwatch()
    servers.up(home)
    if everything:
        services.setup(home)
        services.up(home)
    say(f"ready after {watch.seconds:.1f} s; settings in {home.env_file}, logs in {home.logs}")
    print(home.env_file.read_text(), end="")


def _status(home: Home) -> None:
    if not home.path.exists():
        print(f"nothing was ever started in {home.path}")
        return
    for state in servers.status(home):
        word = "ready" if state.ready else "not ready" if state.running else "down"
        where = f"127.0.0.1:{state.port}  pid {state.pid}  {state.megabytes} MB" if state.running else ""
        print(f"{state.name:<14} {word:<10} {where}".rstrip())
    for name, service in services.SERVICES.items():
        identity = process.running(home.pid_file(name))
        if identity is None:
            print(f"{name:<14} down")
            continue
        port = f"127.0.0.1:{services.status_port(home, name)}  " if service.page else ""
        print(f"{name:<14} {'running':<10} {port}pid {identity.pid}  {process.resident_bytes(identity) >> 20} MB")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python3.11 -m stack", description="The local stack of cronstream.")
    parser.set_defaults(home=DEFAULT_HOME, name=None)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("install", help="install what is missing on this machine")
    commands.add_parser("compose-secrets", help="make the secret files that docker-compose.yml mounts")
    in_home = argparse.ArgumentParser(add_help=False)
    in_home.add_argument("--home", type=Path, default=DEFAULT_HOME, help="folder of the stack (default: .local/up)")
    up = commands.add_parser("up", parents=[in_home], help="start the servers")
    up.add_argument("--all", action="store_true", help="and set up and start the product's processes")
    down = commands.add_parser("down", parents=[in_home], help="stop everything that was started")
    down.add_argument("--wipe", action="store_true", help="and delete the data")
    commands.add_parser("status", parents=[in_home], help="what runs, where, and how large it is")
    for verb in ("start", "stop", "kill", "restart"):
        one = commands.add_parser(verb, parents=[in_home], help=f"{verb} one server or process")
        one.add_argument("name", choices=[*servers.SERVERS, *services.SERVICES])
    return parser


if __name__ == "__main__":
    sys.exit(main())
