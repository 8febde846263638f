package app

import (
	"context"
	"time"

	authorizationv1client "k8s.io/client-go/kubernetes/typed/authorization/v1"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cluster/scopes"
)

// addAuthorization adds /authorize, and what knows whether the API server asks it. Without --authorize, tokens with a scope are rejected.
func (w *wiring) addAuthorization(context.Context) error {
	if !w.Authorize {
		return nil
	}
	var client authorizationv1client.SubjectAccessReviewInterface
	if w.access != nil {
		var err error
		if client, err = scopes.Client(w.accessOf("scopes")); err != nil {
			return err
		}
	}
	monitor := scopes.NewMonitor(client, w.log, time.Now)
	w.reviews.Authorize, w.reconciler.ScopesEnforced = true, monitor.Err
	w.add(part{
		metrics: monitor.Collector(), run: endless(monitor.Run), details: monitor.Details, observe: monitor.Observe,
	})
	return nil
}
