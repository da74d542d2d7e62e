"""The catalogue: one table of every set that has a name.

What stands here is known without opening a file: sizes, image shapes, checksums, defaults. Paths are
relative to a data folder; only files with a lasting public address carry one. Gray values are means
of Bernoulli units and drawn again at every use ("resample"), except for `digits`, which are rounded.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from natgrad.data import sources
from natgrad.data.files import File
from natgrad.data.patterns import PatternDistribution, three_by_three_distribution
from natgrad.data.splits import Parts

ImageShape = tuple[int, int]
_Rows = tuple[int, int, int]
_Reader = Callable[[Sequence[Path], int, int], Parts]

CHECKSUMS = """
440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609  mnist/train-images-idx3-ubyte.gz
3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c  mnist/train-labels-idx1-ubyte.gz
8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6  mnist/t10k-images-idx3-ubyte.gz
f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6  mnist/t10k-labels-idx1-ubyte.gz
3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84  fashion_mnist/train-images-idx3-ubyte.gz
a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845  fashion_mnist/train-labels-idx1-ubyte.gz
346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073  fashion_mnist/t10k-images-idx3-ubyte.gz
67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5  fashion_mnist/t10k-labels-idx1-ubyte.gz
baafd62323133dd44978eee6457f6f6e9f7373bc6f80aa1bcb637b0a68a698fb  binarized_mnist/binarized_mnist.npz
80638b4b43ba0c4e3aec407f66392f024201154a460a0766019ef1e8d72f3bae  binary/nltcs.npz
e0aa3a817e9453b41bffb983ba66e596628eaa972feefc07813d14a3affd304d  binary/plants.npz
10ac92226d8a95ed1b3369bfce76518ecb50fb65fd12c2b09850127bba9027af  binary/baudio.npz
2ca4fe08b67c7c252bbacf1d428d6203fc08f1ef728b1df0e09822c1d4dbc386  binary/jester.npz
75d24c98a4bcdde4029bf4c463880286e38eed5c74a543708a3f833d11c5dfd8  binary/bnetflix.npz
c961f26057bc5d6adf14b95eeeafb9d078e84c15239dc16d41a676e5158b95aa  binary/accidents.npz
dd636cf4e73eccc56ca00b77039c589d4a1f70cc5bd33ed63158e572a8f0038d  binary/pumsb_star.npz
7670ce2179427925d66fc7941124995f63292535096843bdef4a94c74dbabf9e  binary/mushrooms.npz
23b607d29837719e6d713c032c8daff1e3a1f87fa8bbac8af8d747767ca291c0  binary/dna.npz
79a7dece247614f8ebd62d2aa8b0163420e2d0fabbac38931b7ed75c1ff57976  binary/nips.npz
599c8af2279beccf721c9caa55cb7e3a5a9acba0a54b40ffa7ccab97ddfb1754  binary/adult.npz
3c62b03fedc5658214694c9381c89532e2d5471a8b308af9e96fd0c5f3b3efa9  binary/ocr_letters.npz
7e2bb03ff481ff8edb9ed91ac244041ec3f13453c3178178d759a889dfd826e6  binary/connect4_partial.npz
90c6ec94bb138540afea57e96095c7b7044c8efa8bd689910a930b02d7325b58  binary/caltech101_silhouettes28.npz
42eab5c804d62e9254473d7d16eb973fed914aa42f5035333f42ccd30874bfff  binary/omniglot28.npz
c12a56fa8f3b39089cc1781003ef55b91af3e9c5f6a225256078d4a13aa06dcc  faces/frey_faces.npz
8b495c12fe7b64fc3d42ecddfa610e56b72986dfeb5e2899094ef90c976ccde5  faces/olivetti_faces.npz
"""  # as `sha256sum` prints and `sha256sum --check` reads them
SHA256 = {path: checksum for checksum, path in (line.split() for line in CHECKSUMS.split("\n") if line)}

MNIST_ADDRESS = "https://ossci-datasets.s3.amazonaws.com/mnist/"
FASHION_ADDRESS = "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/"


@dataclass(frozen=True)
class Entry:
    """One set: `rows` counts train, valid and test, where that is known without the user's file.

    `levels` is the value that means certainly one.

    `in_gray` is what is read when gray values are asked for, where these are not in the set's own files.
    """

    name: str
    description: str
    visible: int
    rows: _Rows | None
    read: _Reader
    files: tuple[File, ...] = ()
    image_shape: ImageShape | None = None
    levels: int = 1
    binarize: str | None = None
    distribution: Callable[[], PatternDistribution] | None = None
    in_gray: "Entry | None" = None


def embedded(name: str, description: str, rows: _Rows, read: _Reader, image_shape: ImageShape) -> Entry:
    """A set that needs no file."""
    return Entry(name, description, image_shape[0] * image_shape[1], rows, read, (), image_shape)


def packed_entry(
    name: str, description: str, visible: int, rows: _Rows, read: _Reader = sources.packed
) -> Entry:
    """A binary set of the folder `binary`."""
    return Entry(name, description, visible, rows, read, files(f"binary/{stem(name)}.npz"))


def images(
    name: str, description: str, rows: _Rows, read: _Reader, path: str, image_shape: ImageShape
) -> Entry:
    """A set of binary images in one file."""
    return Entry(name, description, image_shape[0] * image_shape[1], rows, read, files(path), image_shape)


def idx_entry(name: str, description: str, address: str) -> Entry:
    """A set of gray images in the four files of MNIST; 10,000 of its train rows serve as valid."""
    kinds = ("train-images-idx3", "train-labels-idx1", "t10k-images-idx3", "t10k-labels-idx1")
    four = files(*(f"{stem(name)}/{kind}-ubyte.gz" for kind in kinds), address=address)
    return gray(Entry(name, description, 784, (50_000, 10_000, 10_000), sources.idx, four, (28, 28)))


def gray(entry: Entry, levels: int = 255, binarize: str = "resample") -> Entry:
    """The same entry with values 0..levels."""
    return replace(entry, levels=levels, binarize=binarize)


def stem(name: str) -> str:
    """The name of a set as its files spell it."""
    return name.replace("-", "_")


def files(*paths: str, address: str | None = None) -> tuple[File, ...]:
    """The published files at these paths, with their checksums."""
    return tuple(File(path, SHA256[path], address and address + path.rpartition("/")[2]) for path in paths)


MNIST = idx_entry("mnist", "handwritten digits, the original gray images", MNIST_ADDRESS)
MINI_IN_GRAY = replace(
    MNIST,
    name="mini-mnist",
    description="gray MNIST at half its side",
    visible=196,
    image_shape=(14, 14),
    read=sources.mini_gray,
)

TABLE = (
    gray(
        embedded(
            "digits", "handwritten digits carried by scikit-learn", (1297, 200, 300), sources.digits, (8, 8)
        ),
        16,
        "round",
    ),
    replace(
        embedded(
            "3by3",
            "row and column patterns with a known distribution",
            (15000, 3000, 3000),
            sources.three_by_three,
            (3, 3),
        ),
        distribution=three_by_three_distribution,
    ),
    replace(
        images(
            "mini-mnist",
            "binarized MNIST at half its side; gray MNIST where resampled",
            (50000, 10000, 10000),
            sources.mini,
            "binarized_mnist/binarized_mnist.npz",
            (14, 14),
        ),
        in_gray=MINI_IN_GRAY,
    ),
    images(
        "binarized-mnist",
        "MNIST in the fixed binarization of Larochelle and Murray",
        (50000, 10000, 10000),
        sources.packed,
        "binarized_mnist/binarized_mnist.npz",
        (28, 28),
    ),
    MNIST,
    idx_entry("fashion-mnist", "articles of clothing, gray images", FASHION_ADDRESS),
    gray(
        images(
            "frey-faces",
            "one face, frames of a film, gray",
            (1441, 262, 262),
            sources.film,
            "faces/frey_faces.npz",
            (28, 20),
        )
    ),
    gray(
        images(
            "olivetti-faces",
            "ten portraits of each of forty people, gray",
            (280, 40, 80),
            sources.portraits,
            "faces/olivetti_faces.npz",
            (64, 64),
        )
    ),
    gray(
        Entry(
            "toronto-faces",
            "faces of the user's TFD_48x48.mat at half their side, gray",
            576,
            None,
            sources.toronto_faces,
            (File("faces/TFD_48x48.mat", None),),
            (24, 24),
        )
    ),
    packed_entry("nltcs", "disability survey; small enough to enumerate", 16, (16181, 2157, 3236)),
    packed_entry("plants", "plant species by region", 69, (17412, 2321, 3482)),
    packed_entry("baudio", "audio listening", 100, (15000, 2000, 3000)),
    packed_entry("jester", "joke ratings", 100, (9000, 1000, 4116)),
    packed_entry("bnetflix", "film ratings", 100, (15000, 2000, 3000)),
    packed_entry("accidents", "traffic accidents", 111, (12758, 1700, 2551)),
    packed_entry("pumsb-star", "census", 163, (12262, 1635, 2452)),
    packed_entry("mushrooms", "properties of mushrooms", 112, (2000, 500, 5624)),
    packed_entry("dna", "splice junctions of DNA", 180, (1600, 400, 1186)),
    packed_entry("nips", "words of NIPS papers, volumes 0 to 12", 500, (400, 100, 1240)),
    packed_entry("adult", "census income; test rows in the order of a9a", 123, (5000, 1414, 26147)),
    images(
        "ocr-letters",
        "handwritten letters of words",
        (32152, 10000, 10000),
        sources.packed,
        "binary/ocr_letters.npz",
        (16, 8),
    ),
    packed_entry(
        "connect4-partial",
        "positions of Connect Four; test drawn from valid",
        126,
        (16000, 2000, 2000),
        sources.packed_without_test,
    ),
    images(
        "caltech101-silhouettes28",
        "outlines of objects, background 1",
        (4100, 2264, 2307),
        sources.packed,
        "binary/caltech101_silhouettes28.npz",
        (28, 28),
    ),
    gray(
        images(
            "omniglot28",
            "characters of fifty alphabets, gray; valid drawn from train",
            (17352, 1928, 13180),
            sources.omniglot,
            "binary/omniglot28.npz",
            (28, 28),
        )
    ),
)

CATALOGUE = {entry.name: entry for entry in TABLE}
