"""Read labels, images and features, split their rows, and check them before training."""

from halftruth.extras import needs_extras

with needs_extras("halftruth.data"):
    from halftruth.data.check import ClassCount, Report, check_data, training_part
    from halftruth.data.decode_images import Decoded, check_images, decode_all
    from halftruth.data.errors import DataError
    from halftruth.data.feature_columns import read_features
    from halftruth.data.image_file import BadImage
    from halftruth.data.images import ImageStore
    from halftruth.data.label_files import read_labels
    from halftruth.data.readers.label_table import labels_from_frame, write_labels
    from halftruth.data.readers.text_table import read_column
    from halftruth.data.splits import (
        Splits,
        choose_splits,
        fold_of_rows,
        named_splits,
        split_rows,
    )
    from halftruth.data.write_shards import write_shards

__all__ = [
    "BadImage",
    "ClassCount",
    "DataError",
    "Decoded",
    "ImageStore",
    "Report",
    "Splits",
    "check_data",
    "check_images",
    "choose_splits",
    "decode_all",
    "fold_of_rows",
    "labels_from_frame",
    "named_splits",
    "read_column",
    "read_features",
    "read_labels",
    "split_rows",
    "training_part",
    "write_labels",
    "write_shards",
]
