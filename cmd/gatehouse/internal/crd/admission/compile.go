package admission

import (
	"errors"
	"fmt"

	"k8s.io/client-go/tools/cache"

	"github.com/gatehouse-dev/gatehouse/webhooks/config"
	"github.com/gatehouse-dev/gatehouse/webhooks/diagnostic"
)

// partition separates the diagnostics about an object from those about others.
func partition(found diagnostic.List, object string) (own, others diagnostic.List) {
	for _, f := range found {
		if f.Object == object {
			own = append(own, f)
		} else {
			others = append(others, f)
		}
	}
	return own, others
}

func hasErrors(found diagnostic.List) bool { return found.Err() != nil }

func same(a, b diagnostic.Diagnostic) bool {
	return a.Severity == b.Severity && a.Object == b.Object && a.Field == b.Field && a.Message == b.Message
}

// diagnosticsOf returns the diagnostics of a compilation that failed, none of one that was
// stopped. Any other error is a bug: the panic ends the review, and not the program.
func diagnosticsOf(err error, stop func() error) diagnostic.List {
	if list, ok := errors.AsType[diagnostic.List](err); ok {
		return list
	}
	if stop != nil && stop() != nil {
		return nil //nolint:nilerr // the review fails with the end of its context
	}
	panic(fmt.Errorf("compiling: %w", err))
}

// shadowWarnings warns of an object that a document of the directory overrides. For access
// tokens and revocations only their status says so: anyone who reaches the port could
// find out which ids there are.
func shadowWarnings(current *config.Config, one *config.Resource) diagnostic.List {
	if one.Kind == accessToken || one.Kind == tokenRevocation {
		return nil
	}
	source, there := current.Sources(one.Kind)[cache.MetaObjectToName(one.GetObjectMeta()).String()]
	if !there || source == config.ClusterSource {
		return nil
	}
	return diagnostic.List{{
		Severity: diagnostic.Warning, Source: config.ClusterSource, Object: one.Object(),
		Message: fmt.Sprintf("the configuration directory has a document of the same name, in %q, which takes precedence", source),
		Hint:    "remove one of the two or give it another name",
	}}
}
