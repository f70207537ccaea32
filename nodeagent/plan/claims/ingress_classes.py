"""Which class an Ingress is of, and which controller serves the class.

The Kubernetes documentation, "Ingress class" and "Default IngressClass"; the annotation is the way of before
Kubernetes 1.18 and still understood by every controller.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from nodeagent.model.annotations import CLASS_ANNOTATION
from nodeagent.model.objects import Ingress, IngressClass


@dataclass(frozen=True, slots=True)
class IngressClasses:
    """The cluster's IngressClasses, as decisions ask for them."""

    controllers: dict[str, str]
    """Class to controller."""
    default: str | None
    """The only class that is marked as default; with several of them none is."""

    def of_ingress(self, ingress: Ingress) -> str | None:
        """The Ingress's class: by its spec, else by its annotation, else the default."""
        return ingress.class_name or ingress.annotations.get(CLASS_ANNOTATION) or self.default

    def controller_of(self, ingress_class: str | None) -> str | None:
        """The controller that serves a class, where an IngressClass tells it."""
        return self.controllers.get(ingress_class) if ingress_class else None

    def only_of(self, controller: str) -> str | None:
        """The class of a controller that has exactly one."""
        found = [name for name, serving in self.controllers.items() if serving == controller]
        return found[0] if len(found) == 1 else None


def ingress_classes(found: Iterable[IngressClass]) -> IngressClasses:
    """Makes the value out of the objects."""
    objects = tuple(found)
    defaults = [each.name for each in objects if each.default]
    return IngressClasses(
        {each.name: each.controller for each in objects if each.controller},
        defaults[0] if len(defaults) == 1 else None,
    )
