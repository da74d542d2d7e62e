"""Files: the order of lookup, the checksum, the download, and the sentence for each failure."""

import gc
import hashlib
import http.server
import subprocess
import sys
import threading
from dataclasses import replace

import pytest

from natgrad.data.catalogue import CATALOGUE, CHECKSUMS, TABLE
from natgrad.data.files import File, cache_folder, fetch, locate
from natgrad.errors import InputError

pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # see `server`

CONTENT = b"published bytes"
SHA256 = hashlib.sha256(CONTENT).hexdigest()
FILE = File("folder/set.npz", SHA256)


def put(folder, content=CONTENT):
    path = folder / FILE.path
    path.parent.mkdir(parents=True)
    path.write_bytes(content)
    return path


@pytest.fixture
def server(tmp_path, monkeypatch):
    """An address on this machine that serves CONTENT at /set.npz and nothing else."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            found = self.path == "/set.npz"
            self.send_response(200 if found else 404)
            self.send_header("Content-Length", str(len(CONTENT) if found else 0))
            self.end_headers()
            self.wfile.write(CONTENT if found else b"")

        def log_message(self, *arguments):
            del arguments

    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with http.server.HTTPServer(("127.0.0.1", 0), Handler) as running:
        thread = threading.Thread(target=running.serve_forever, args=(0.02,))
        thread.start()
        yield f"http://127.0.0.1:{running.server_address[1]}"
        running.shutdown()
        thread.join()
    gc.collect()  # a refused download leaves its socket to the collector; let it be collected here


def test_data_folder_comes_before_cache(tmp_path, empty_folders, monkeypatch):
    cached = put(empty_folders)
    assert locate(FILE) == ("cache", cached)
    given = put(tmp_path / "data")
    monkeypatch.setenv("NATGRAD_DATA", str(tmp_path / "data"))
    assert locate(FILE) == ("NATGRAD_DATA", given)
    assert fetch(FILE) == given


def test_cache_is_the_platforms_unless_told(monkeypatch):
    monkeypatch.delenv("NATGRAD_CACHE", raising=False)
    assert cache_folder().name.lower() == "natgrad" or "natgrad" in str(cache_folder())


def test_missing_file_names_its_places(empty_folders, tmp_path, monkeypatch):
    with pytest.raises(
        InputError, match=r"folder/set.npz was not found and has no public download; put it .*unset"
    ):
        fetch(FILE)
    monkeypatch.setenv("NATGRAD_DATA", str(tmp_path))
    with pytest.raises(InputError, match=r"NATGRAD_DATA \(now .*\) or at .*cache.folder.set.npz"):
        fetch(FILE)
    monkeypatch.setenv("NATGRAD_DATA", "nowhere")
    with pytest.raises(InputError, match="now 'nowhere', which is not a folder"):
        fetch(FILE)


def test_a_file_without_a_checksum_is_used_as_it_is(empty_folders):
    path = put(empty_folders, b"any bytes")
    assert fetch(replace(FILE, sha256=None)) == path


def test_wrong_checksum_is_said(empty_folders):
    path = put(empty_folders, b"other bytes")
    with pytest.raises(
        InputError, match=f"expected the sha256 {SHA256[:12]}... .* delete that file and get it again"
    ):
        fetch(FILE)
    assert path.exists()


def test_download_enters_the_cache_once(empty_folders, server):
    file = replace(FILE, url=f"{server}/set.npz")
    assert locate(file)[0] == "download"
    path = fetch(file)
    assert path == empty_folders / FILE.path
    assert path.read_bytes() == CONTENT
    assert locate(file)[0] == "cache"
    assert fetch(replace(file, url="http://127.0.0.1:9/never")) == path


def test_download_of_something_else_leaves_nothing(empty_folders, server):
    file = replace(FILE, sha256="0" * 64, url=f"{server}/set.npz")
    with pytest.raises(
        InputError, match=r"now serves is not the recorded folder/set.npz \(its sha256 differs\)"
    ):
        fetch(file)
    assert not [path for path in empty_folders.rglob("*") if path.is_file()]


@pytest.mark.parametrize("missing", ["/other.npz", None], ids=["not found", "offline"])
@pytest.mark.few(1)
def test_failed_download_is_one_sentence(empty_folders, server, missing):
    url = server + missing if missing else "http://127.0.0.1:9/set.npz"
    with pytest.raises(InputError, match=r"could not be saved \(\w+\); go online, or put it under") as caught:
        fetch(replace(FILE, url=url))
    assert "\n" not in str(caught.value)
    assert not [path for path in empty_folders.rglob("*") if path.is_file()]


def test_unwritable_cache_is_said(tmp_path, empty_folders, server):
    empty_folders.write_text("a file where the folder should be")
    with pytest.raises(InputError, match="could not be saved"):
        fetch(replace(FILE, url=f"{server}/set.npz"))


def test_table_is_consistent():
    assert len(CATALOGUE) == len(TABLE) == 24
    used = {file.path for entry in TABLE for file in entry.files if file.sha256}
    assert used == {line.split()[1] for line in CHECKSUMS.strip().split("\n")}
    for entry in TABLE:
        assert entry.name == entry.name.lower().replace("_", "-")
        assert (entry.levels == 1) == (entry.binarize is None)
        assert not entry.image_shape or entry.image_shape[0] * entry.image_shape[1] == entry.visible


def test_only_mnist_and_fashion_have_an_address():
    assert {e.name for e in TABLE for f in e.files if f.url} == {"mnist", "fashion-mnist"}
    assert CATALOGUE["mnist"].files[2].url.endswith("/mnist/t10k-images-idx3-ubyte.gz")


def test_import_is_light():
    heavy = "{'jax', 'sklearn', 'pooch', 'scipy'}"
    code = f"import sys, natgrad.data, natgrad.cli.data; print(*({heavy} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""
