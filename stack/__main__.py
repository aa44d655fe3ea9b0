"""`python3.11 -m stack ...`: the commands."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from stack import compose_secrets, install, process, servers, services, settings
from stack.errors import StackError
from stack.home import Home
from stack.paths import DEFAULT_HOME
from stack.waiting import Stopwatch, say


def main(argv: list[str] | None = None) -> int:
    """Run one command; 1 and one clear message when it fails."""
    arguments = _parser().parse_args(argv)
    try:
        return run(arguments)
    except StackError as error:
        say(f"stack: {error}")
        return 1
    except KeyboardInterrupt:
        say("stack: interrupted; what this command started is stopped")
        return 130


def run(arguments: argparse.Namespace) -> int:
    """Dispatch to the parts; the exit status."""
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
            return 0 if _status(home) else 1
        case "compose-secrets":
            compose_secrets.write()
        case one if arguments.name in servers.SERVERS:
            getattr(servers, one)(home, arguments.name)
        case "start":
            services.up(home, [arguments.name], _settings(home))
        case "restart":
            chosen = _settings(home)
            services.stop(home, arguments.name)
            services.up(home, [arguments.name], chosen)
        case one:
            getattr(services, one)(home, arguments.name)
    return 0


def _up(home: Home, *, everything: bool) -> None:
    watch = Stopwatch()
    if everything:
        settings.make_example(home)
        for name in settings.unheard(home):
            say(f"  {name} of the environment is not heard: the stack has its own")
    chosen = _settings(home) if everything else {}
    servers.up(home)
    if everything:
        services.setup(home, chosen)
        services.up(home, settings=chosen)
    say(f"ready after {watch.seconds:.1f} s; settings: {settings.file_of(home)}, logs: {home.logs}")
    file = servers.env_file_of(home)
    shown = file.relative_to(Path.cwd()) if file.is_relative_to(Path.cwd()) else file
    say(f"where it is, as written to {shown} (into a shell: set -a; . {shown}; set +a):")
    print(file.read_text(), end="")


def _settings(home: Home) -> dict[str, str]:
    """What the settings file says, taken by every process."""
    chosen = settings.read(home)
    settings.check({**home.environment(), **chosen})
    return chosen


def _status(home: Home) -> bool:
    """Print a line a process; whether all are well."""
    if not home.path.exists():
        print(f"nothing was ever started in {home.path}")
        return False
    well = True
    for state in servers.status(home):
        word = "ready" if state.ready else "not ready" if state.running else "down"
        where = f"127.0.0.1:{state.port}  pid {state.pid}  {state.megabytes} MB" if state.running else ""
        print(f"{state.name:<14} {word:<10} {where}".rstrip())
        well &= state.ready
    for name, service in services.SERVICES.items():
        identity = process.running(home.pid_file(name))
        if identity is None:
            words = services.last_words(home, name)
            print(f"{name:<14} down" if words is None else f"{name:<14} ended      its last log line: {words[:200]}")
            well = False
            continue
        port = f"127.0.0.1:{services.status_port(home, name)}  " if service.page else ""
        print(f"{name:<14} {'running':<10} {port}pid {identity.pid}  {process.resident_bytes(identity) >> 20} MB")
    return well


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
    commands.add_parser("status", parents=[in_home], help="what runs, where, and how large it is; 1 unless all do")
    for verb in ("start", "stop", "kill", "restart"):
        one = commands.add_parser(verb, parents=[in_home], help=f"{verb} one server or process")
        one.add_argument("name", choices=[*servers.SERVERS, *services.SERVICES])
    return parser


if __name__ == "__main__":
    sys.exit(main())
