"""What the cluster says about containers that were observed."""

import pytest

from carico_agent.lib.kube.declared import DeclaredContainer, DeclaredPod
from carico_agent.recommend.history import ContainerHistory
from carico_agent.recommend.sources.cluster import KnownPods, complete
from carico_agent.recommend.sources.histories import Found, NoHistory
from carico_agent.recommend.workload import ContainerKey, OwnerObject


@pytest.mark.parametrize(
    ("by_labels", "said"),
    [(True, "belongs to a Pod with these labels"), (False, "none of the observed containers is in them now")],
)
def test_only_a_selector_is_blamed_on_labels(by_labels: bool, said: str) -> None:
    """`carico recommend --cluster` without -l complained about labels, too."""
    observed = ContainerKey(OwnerObject("shop", "Deployment", "web"), "web-59898586b6-5td8k", "app")
    other = DeclaredPod("Deployment", "web", "BestEffort", {"web": DeclaredContainer(None, None)})
    known = KnownPods({} if by_labels else {("shop", "web-59898586b6-x7k2p"): other})
    with pytest.raises(NoHistory, match=said):
        complete(Found({observed: ContainerHistory()}), known, only_known=by_labels)
