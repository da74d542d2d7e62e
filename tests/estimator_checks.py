"""The checks of scikit-learn that an estimator of rows in [0, 1] must fail: they feed other values."""


def expected_failures(estimator):
    """Nothing with `scale`; without it, what feeds values outside [0, 1] must be refused."""
    return (
        {} if estimator.scale else dict.fromkeys(UNSCALED, "its data are outside [0, 1], which is an error")
    )


UNSCALED = (
    "check_estimators_overwrite_params",
    "check_dont_overwrite_parameters",
    "check_estimators_fit_returns_self",
    "check_readonly_memmap_input",
    "check_n_features_in_after_fitting",
    "check_positive_only_tag_during_fit",
    "check_estimators_dtypes",
    "check_pipeline_consistency",
    "check_estimators_pickle",
    "check_f_contiguous_array_estimator",
    "check_transformer_data_not_an_array",
    "check_transformer_general",
    "check_transformer_preserve_dtypes",
    "check_methods_sample_order_invariance",
    "check_methods_subset_invariance",
    "check_fit2d_1sample",
    "check_fit2d_1feature",
    "check_dict_unchanged",
    "check_fit_idempotent",
    "check_fit_check_is_fitted",
    "check_n_features_in",
    "check_fit2d_predict1d",
)
