package install

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cli"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cluster/install"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cluster/scopes"
	"github.com/gatehouse-dev/gatehouse/internal/apierr"
	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
)

var (
	// errUnchecked means that an API server creates Grants without checking who grants.
	errUnchecked = errors.New("the API server does not check who grants")
	// errNoGrants means that it has no Grants at all.
	errNoGrants = errors.New("the API server has no custom resources of the kind Grant (hint: gatehouse manifests --custom-resources, or the chart, installs them)")
)

// grantTries is how often an API server is asked. A load balancer spreads the requests over the API servers.
const grantTries = 4

// checkGrants asks API servers, by dry runs, whether they check who grants. Gatehouse itself relies on that check: it sees the policy and
// its binding, and not whether the API server evaluates policies. The error is errUnchecked if one of them does not, and errNoGrants if
// there is nothing to check; any other means that this is not known.
func checkGrants(ctx context.Context, client dynamic.Interface, now time.Time) error {
	var unknown error
	for range grantTries {
		_, err := client.Resource(v1alpha1.GroupVersion.WithResource("grants")).Create(ctx, probeGrant(now), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		switch {
		case err == nil:
			return fmt.Errorf("%w: as a dry run, it has created a Grant in the name of another user, so anybody who may create Grants can give every group to everybody "+
				"(hint: install the ValidatingAdmissionPolicy %[2]q and its binding again, with the chart or gatehouse manifests --custom-resources; if both are there, "+
				"remove ValidatingAdmissionPolicy from the API server's --disable-admission-plugins)", errUnchecked, install.GrantPolicy)
		case strings.Contains(err.Error(), "ValidatingAdmissionPolicy '"+install.GrantPolicy+"'"): // as it should
		case apierrors.IsNotFound(err):
			return errNoGrants
		case apierr.LacksRight(err, "create"):
			return fmt.Errorf("cannot ask the API server whether it checks who grants: %w (hint: you need the right to create grants.gatehouse.dev; this is a dry run, which creates nothing)", err)
		default:
			unknown = cmp.Or(unknown, fmt.Errorf("cannot find out whether the API server checks who grants: %w", cmp.Or(apierr.Unreached(err), err)))
		}
	}
	return unknown
}

// probeGrant returns a Grant that nobody may create: it is in the name of another user, and its group is none that anybody gives away.
func probeGrant(now time.Time) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": v1alpha1.GroupVersion.String(), "kind": "Grant", "metadata": map[string]any{"generateName": probeName + "-"},
		"spec": map[string]any{
			"subject": map[string]any{"user": probeName}, "groups": []any{probeName}, "grantedBy": probeName,
			"reason": "a dry run of gatehouse probe", "expiresAt": now.Add(time.Minute).UTC().Format(time.RFC3339),
		},
	}}
}

// grantsClient returns the client of checkGrants.
func grantsClient(config *rest.Config) (dynamic.Interface, error) {
	config = scopes.Separately(config)
	config.WarningHandler = rest.NoWarnings{}
	return dynamic.NewForConfig(config)
}

// runGrants checks whether the API server checks who grants.
func (f *probeFlags) runGrants(ctx context.Context, client dynamic.Interface, host string, s cli.Streams) error {
	ctx, cancel := context.WithTimeout(ctx, f.timeout)
	defer cancel()
	err := checkGrants(ctx, client, time.Now())
	switch {
	case errors.Is(err, errUnchecked):
		return &cli.ExitError{Code: cli.ExitNo, Err: err}
	case err != nil:
		return err
	}
	_, err = fmt.Fprintf(s.Out, "%s: checks who grants\n", host)
	return err
}

// warnGrants is runGrants beside other checks: what is not known is a warning, and without Grants there is nothing to say.
func (f *probeFlags) warnGrants(ctx context.Context, client dynamic.Interface, host string, s cli.Streams) error {
	err := f.runGrants(ctx, client, host, s)
	if err == nil || errors.Is(err, errUnchecked) {
		return err
	}
	if !errors.Is(err, errNoGrants) {
		_, err = fmt.Fprintln(s.Err, "warning:", cli.Inert(err.Error()))
		return err
	}
	return nil
}
