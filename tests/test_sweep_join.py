"""Sweeps that several workers share: a journal on a disk, and a PostgreSQL server of the tests' own."""

import getpass
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

import sweeps
from natgrad.cli.main import main
from natgrad.errors import InputError
from natgrad.sweep import plan as plans
from natgrad.sweep import sweep
from natgrad.sweep import tickets as queue
from natgrad.sweep.store import open_study, shown
from natgrad.sweep.tickets import Ticket, TicketStore
from sweeps import DATA, grid

file, fake = sweeps.file, sweeps.fake  # fixtures

optuna = pytest.importorskip("optuna")


@pytest.fixture(autouse=True)
def undrawn(monkeypatch):
    """No pictures: they take longer than all else here."""
    monkeypatch.setattr("natgrad.sweep.table.draw_sweep", lambda *given, **named: None)


ONE = [Ticket("one", "", {"a": 1}, (0,))]


def store(file, heartbeat=0.05, address="s.journal", more=""):
    path = grid(file, [0.1, 0.3], f"[sweep]\nheartbeat = {heartbeat}\n" + more)
    return TicketStore(address, "s", plans.read_plan(path, {}))


def until_buried(watching, tickets, seconds=20):
    end = time.monotonic() + seconds
    while (claim := watching.claim()) is None:
        assert time.monotonic() < end
        watching.keep_up(tickets)
        time.sleep(0.01)
    return claim


def test_a_ticket_is_taken_once_and_settled_for_all(file):
    one, two = store(file), store(file)
    one.fill(ONE)
    two.fill(ONE)
    claim = one.claim()
    assert (claim.ticket, two.claim(), two.are_settled(ONE)) == (ONE[0], None, False)
    one.note(claim, {"seed": 0, "settings": {}, "rows": []})
    one.settle(claim, 1.5)
    assert two.are_settled(ONE)
    assert [line["rows"] for line in two.lines()] == [[]]


def test_a_dead_worker_s_ticket_is_taken_by_another_and_its_own_words_no_longer_count(file):
    one, two = store(file), store(file)
    one.fill(ONE)
    first = one.claim()
    second = until_buried(two, ONE)
    assert second.ticket == first.ticket
    one.note(first, {"seed": 0, "rows": ["late"]})
    one.settle(first, 9.0)
    assert (one.lines(), one.are_settled(ONE)) == ([], False)
    two.settle(second, 1.0)
    assert one.are_settled(ONE)


def test_a_worker_that_beats_keeps_its_ticket(file):
    one, two = store(file, heartbeat=0.2), store(file, heartbeat=0.2)
    one.fill(ONE)
    one.claim()
    end = time.monotonic() + 1.5  # more than twice what a dead worker is given
    while time.monotonic() < end:
        one.keep_up(ONE)
        two.keep_up(ONE)
        assert two.claim() is None
        time.sleep(0.02)


def test_a_ticket_over_which_workers_die_fails(file):
    workers = [store(file) for _ in range(queue._DEATHS + 1)]
    workers[0].fill(ONE)
    workers[0].claim()
    for worker in workers[1:-1]:
        until_buried(worker, ONE)
    last, end = workers[-1], time.monotonic() + 20
    while not last.are_settled(ONE):
        assert time.monotonic() < end
        last.keep_up(ONE)
    assert [line["error"] for line in last.lines()] == [
        "3 workers died one after the other while they had it"
    ]


def test_a_worker_that_is_stopped_puts_its_tickets_back(file):
    one, two = store(file, heartbeat=100), store(file, heartbeat=100)
    one.fill(ONE)
    one.claim()
    one.release()
    assert two.claim().ticket == ONE[0]


def test_tickets_put_in_twice_count_once(file):
    one, two = store(file), store(file)
    about = {"ticket": ONE[0]._asdict()}
    for _ in range(2):
        one.study.enqueue_trial({}, user_attrs=about)
    assert one.claim() is not None
    assert two.claim() is None


def test_failed_tickets_are_tried_again_by_the_next_who_joins_when_all_rest(file):
    one = store(file)
    one.fill(ONE)
    one.settle(one.claim(), None)
    assert one.are_settled(ONE)
    one.fill(ONE)
    assert one.claim() is None
    one.fill(ONE, again=True)
    assert one.claim().ticket == ONE[0]


def join_side_by_side(path, address, workers=2):
    """The results of workers that share a sweep, each in a thread with a folder of its own."""
    found, lines = {}, []

    def work(number):
        found[number] = sweep(path, workers=1, out=f"out{number}", join=address, say=lines.append)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(workers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    return [found[number] for number in range(workers)], lines


def figures(found):
    return [(line["setting"], line["valid_ll"], line["seeds"]) for line in found["settings"]]


def check_a_shared_grid(file, address):
    """Every training once, the best confirmed, the same tables as without sharing."""
    path = grid(file, [0.1, 0.3, 0.8], "[sweep]\nconfirm = [5]\nheartbeat = 0.2\n")
    found, lines = join_side_by_side(path, address)
    alone = sweep(path, workers=2, out="alone")
    assert figures(found[0]) == figures(found[1]) == figures(alone)
    assert found[0]["chosen"] == found[1]["chosen"] == alone["chosen"]
    assert len(lines) == 4
    trained = [{place.name for place in Path(f"out{number}").glob("own-*")} for number in range(2)]
    assert trained[0].isdisjoint(trained[1])
    assert trained[0] | trained[1] == {place.name for place in Path("alone").glob("own-*")}
    assert sweep(path, out="out0", compare_only=True)["chosen"] == alone["chosen"]  # the record is whole
    assert figures(sweep(path, out="later", join=address, compare_only=True)) == figures(alone)


def check_a_shared_search(file, address):
    path = file(
        DATA + "[optimizer]\nlearning_rate = {low = 0.01, high = 0.7}\n[model]\nlayers = [[3], [4, 2]]\n"
        "[sweep]\nseeds = [0, 1]\ntrials = 6\nheartbeat = 0.2\n"
    )
    found, lines = join_side_by_side(path, address)
    assert figures(found[0]) == figures(found[1])
    rates = {line["setting"]["optimizer.learning_rate"] for line in found[0]["settings"]}
    assert (len(rates), len(lines)) == (6, 12)
    path.write_text(path.read_text().replace("trials = 6", "trials = 8"))
    longer = sweep(path, workers=1, out="out0", join=address)
    assert rates < {line["setting"]["optimizer.learning_rate"] for line in longer["settings"]}
    assert len(longer["settings"]) == 8


def test_a_grid_is_shared_over_a_journal(file, fake):
    check_a_shared_grid(file, "s.journal")


@pytest.mark.slow
def test_a_search_is_shared_over_a_journal(file, fake):
    check_a_shared_search(file, "s.journal")


def test_a_store_is_for_one_file_of_a_name(file):
    store(file)
    with pytest.raises(InputError, match=r"the store s.journal has another sweep that is called s; join it"):
        store(file, more="confirm = [9]\n")
    assert store(file, heartbeat=9).study.study_name == "s"


def test_a_store_that_cannot_be_used_is_said(file, capsys, monkeypatch):
    path = grid(file, [0.1])
    closed = f"postgresql://me:s3cret@127.0.0.1:{free_port()}/sweeps?password=s3cret"
    pytest.importorskip("psycopg")
    for address, sentence in (
        (closed, "cannot reach the store postgresql://127.0.0.1:"),
        ("sqlite:///s3cret.db", "join: expected postgresql://USER@HOST/DATABASE, mysql"),
        ("mysql://me:s3cret@host:s3cret/x", "an address that cannot be read"),
        ("none/s.journal", "cannot reach the store none/s.journal (No such file or directory)"),
        ("own.npy", "own.npy is not a journal"),
        ("s.toml", "s.toml is not a journal that can be read; give a journal of natgrad sweep"),
    ):
        with pytest.raises(SystemExit) as stopped:
            main(["sweep", str(path), "--join", address])
        _, err = capsys.readouterr()
        assert stopped.value.code == 2
        assert sentence in err
        assert "s3cret" not in err
        assert err.count("\n") == 1
    assert not Path("sweeps").exists()
    monkeypatch.setattr("natgrad.sweep.store.DRIVERS", {"postgresql": "psycopg0"})
    with pytest.raises(InputError, match=r"needs psycopg0, which is missing; pip install psycopg\[binary\]"):
        open_study("postgresql://host/x", "s")
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(InputError, match="join: a shared sweep needs optuna, which is missing"):
        open_study("s.journal", "s")


def test_a_sweep_alone_and_a_shared_one_do_not_share_a_folder(file, fake):
    path = grid(file, [0.1])
    code = "import fcntl; f = open('out/workers.log', 'a'); fcntl.flock(f, fcntl.LOCK_EX);"
    code += "print(1, flush=True); input()"
    Path("out").mkdir()
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-c", code], **pipes) as other:
        other.stdout.readline()
        with pytest.raises(InputError, match="another sweep is running in out; wait for it"):
            sweep(path, out="out", join="s.journal")
        other.communicate(b"\n")


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def postgres_programs():
    found = [Path(place) for place in sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)]
    on_path = shutil.which("postgres")
    places = [*found, *([Path(on_path).resolve().parent] if on_path else [])]
    return next((place for place in places if (place / "initdb").exists()), None)


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """A PostgreSQL server on loopback, in a folder of its own; a function that makes an empty database."""
    pytest.importorskip("psycopg", reason="NO PSYCOPG HERE: sweeps over PostgreSQL are not tested")
    programs = postgres_programs()
    if programs is None:
        pytest.skip("NO POSTGRESQL HERE: sweeps over a database are not tested")
    root = os.getuid() == 0  # PostgreSQL refuses to run as root
    user = "nobody" if root else getpass.getuser()
    place = Path(subprocess.check_output(["mktemp", "-d"], text=True).strip())
    as_user = ["setpriv", "--reuid", user, "--regid", "nogroup", "--clear-groups"] if root else []
    if root:
        shutil.chown(place, user)
    port, log = free_port(), (place.parent / f"{place.name}.log").open("wb")
    (place.parent / f"{place.name}.pw").write_text("s3cret")
    password = place.parent / f"{place.name}.pw"
    password.chmod(0o644)
    flags = ["-U", "tester", "-A", "scram-sha-256", f"--pwfile={password}", "--no-sync"]
    run = {"cwd": "/", "stdout": log, "stderr": log}
    subprocess.run([*as_user, programs / "initdb", "-D", place / "data", *flags], check=True, **run)
    settings = ["-h", "127.0.0.1", "-p", str(port), "-k", str(place), "-F"]
    process = subprocess.Popen([*as_user, programs / "postgres", "-D", place / "data", *settings], **run)
    try:
        yield connected(port)
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(30)
        log.close()
        shutil.rmtree(place, ignore_errors=True)
        password.unlink()
        Path(log.name).unlink()


def connected(port):
    import psycopg

    base, end = f"postgresql://tester:s3cret@127.0.0.1:{port}", time.monotonic() + 60
    while True:
        try:
            psycopg.connect(f"{base}/postgres").close()
            break
        except psycopg.OperationalError:
            assert time.monotonic() < end
            time.sleep(0.1)

    def database(name):
        with psycopg.connect(f"{base}/postgres", autocommit=True) as connection:
            connection.execute(f"create database {name}")
        return f"{base}/{name}"

    return database


def test_a_grid_is_shared_over_postgresql(file, fake, server):
    """Two workers find an empty database at once: both make its tables, one of them can."""
    check_a_shared_grid(file, server("grid"))


@pytest.mark.slow
def test_a_search_is_shared_over_postgresql(file, fake, server):
    check_a_shared_search(file, server("search"))


@pytest.mark.slow
def test_a_wrong_password_is_said_without_it(file, server):
    address = server("locked").replace("s3cret", "wr0ng")
    with pytest.raises(InputError, match=r"cannot reach the store postgresql://127.0.0.1.*password") as said:
        sweep(grid(file, [0.1]), join=address)
    assert "wr0ng" not in str(said.value)
    assert shown(address).endswith("/locked")


START = "import sys; from natgrad.cli.main import main; main(sys.argv[1:])"


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("store_of", ["journal", "postgresql"])
def test_a_killed_worker_s_training_is_finished_by_another(file, request, store_of):
    """Killed in the middle of a training; the other worker, on the same disk, continues it bit for bit."""
    path = grid(file, [0.1, 0.2], "[sweep]\nheartbeat = 0.5\n[evaluation]\nevery = 500\n")
    text = path.read_text().replace("epochs = 2", "epochs = 1500\nchunk_steps = 5\nsave_seconds = 0.2")
    path.write_text(text)
    address = "s.journal" if store_of == "journal" else request.getfixturevalue("server")("killed")
    command = [sys.executable, "-c", START, "sweep", "s.toml", "--workers", "1", "--quiet"]
    subprocess.run([*command, "--out", "whole"], check=True)
    command += ["--join", address, "--out", "shared"]
    with subprocess.Popen(command) as killed:
        end = time.monotonic() + 240
        while not any(int(each.name[:10]) for each in Path("shared").glob("*/state/*.json")):
            assert time.monotonic() < end
            time.sleep(0.05)
        killed.kill()
    begun = next(Path("shared").glob("*/config.toml")).parent
    first = json.loads((begun / "environment.json").read_text())
    subprocess.run(command, check=True)
    assert traces("shared") == traces("whole")
    assert len(traces("whole")) == 2
    assert json.loads((begun / "environment.json").read_text()) == first  # continued, not begun again


def traces(place):
    rows = {
        run.parent.name: [json.loads(line) for line in run.read_text().splitlines()]
        for run in Path(place).glob("*/trace.jsonl")
    }
    return {
        name: [{key: row[key] for key in row if not key.endswith("seconds")} for row in found]
        for name, found in rows.items()
    }
