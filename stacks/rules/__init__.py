"""The rules that look at more than one key: each is a function whose name is the rule, and yields what breaks it.

Rules that concern one item alone (weights that sum to 100, replicas or autoscaling) stand with that item's class in
`stacks.definition`.
"""

from collections.abc import Callable, Iterator

from ..definition import Header
from ..load import Document
from ..problems import Problem
from ..stack import Definition, Stack
from . import capacity, images, names, promotion, references, safety

HEADER_RULES: tuple[Callable[[Header, Document], Iterator[Problem]], ...] = (
    names.no_two_stacks_share_a_name,
    names.no_two_data_planes_share_a_cluster,
    names.no_two_environments_of_a_cluster_share_a_namespace,
    references.data_planes_name_environments_that_exist,
    references.canaries_are_planes_of_the_first_wave,
    promotion.promotions_come_from_other_environments,
    promotion.promotions_begin_somewhere,
)
STACK_RULES: tuple[Callable[[Stack], Iterator[Problem]], ...] = (
    names.no_two_pools_become_one_object,
    names.a_namespace_belongs_to_its_environment,
    names.pool_names_leave_room_for_what_kubernetes_appends,
    references.images_that_are_used_are_named,
    references.repositories_name_datasets_that_exist,
    references.models_name_servers_and_pools_that_exist,
    references.access_rules_name_servers_and_models_that_exist,
    references.access_rules_name_sources_that_are_believed,
    references.mirrors_are_of_registries_that_are_used,
    references.claims_that_exist_are_none_of_ours,
    references.warm_windows_name_models_of_their_pool,
    references.cloud_identity_fits_the_object_store,
    references.domino_principals_need_the_domino_integration,
    promotion.groups_that_promote_are_told_by_an_issuer,
    promotion.those_who_promote_may_look_and_call,
    capacity.mig_profiles_exist_on_their_product,
    capacity.preloaded_models_fit_their_slice,
    capacity.on_demand_models_fit_their_capacity,
    capacity.node_selectors_leave_the_placement_alone,
    capacity.only_on_demand_models_are_pinned_or_idle,
    capacity.models_stay_idle_longer_than_a_lease,
    safety.host_paths_are_for_local_environments,
    safety.nobody_is_granted_everything_in_production,
    safety.secrets_are_never_written_inline,
    safety.the_proxy_can_reach_its_identity_provider,
    safety.servers_can_reach_their_object_store,
    safety.no_issuer_stands_twice,
    safety.access_rules_say_who_vouches_where_several_do,
    safety.somebody_may_call_the_proxy,
    safety.somebody_can_authenticate,
    safety.a_gateway_is_given_no_certificate_of_the_proxy,
)
DEFINITION_RULES: tuple[Callable[[Definition], Iterator[Problem]], ...] = (
    references.every_environment_lives_somewhere,
    promotion.versions_can_come_from_their_environment,
    names.no_two_stacks_of_a_cluster_share_a_host_and_path,
    names.no_two_stacks_of_a_cluster_share_a_volume,
    capacity.products_that_are_asked_for_are_there,
    capacity.whole_gpus_are_told_from_slices,
    capacity.slices_asked_for_are_there,
    capacity.gpus_of_a_replica_are_in_one_node,
    safety.production_shares_no_dataset_that_others_may_write,
    safety.production_shares_no_bucket_that_others_may_write,
    images.the_lock_holds_digests_of_these_images_only,
    images.images_have_a_digest,
)


def check_header(header: Header, document: Document) -> list[Problem]:
    """Return what is wrong with environments and data planes as such."""
    return [problem for rule in HEADER_RULES for problem in rule(header, document)]


def check_stack(stack: Stack) -> list[Problem]:
    """Return what is wrong with a stack whose every part is well formed."""
    return [problem for rule in STACK_RULES for problem in rule(stack)]


def check_definition(definition: Definition) -> list[Problem]:
    """Return what is wrong with all stacks together."""
    return [problem for rule in DEFINITION_RULES for problem in rule(definition)]
