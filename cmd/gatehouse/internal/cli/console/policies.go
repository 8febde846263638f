package console

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cli/console/web"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/install/registration"
	"github.com/gatehouse-dev/gatehouse/webhooks/config"
	"github.com/gatehouse-dev/gatehouse/webhooks/policy"
)

// addPolicies adds the page with all policies, and those of one policy or profile.
func (c *console) addPolicies() {
	c.web.Page("GET /policies", c.showPolicies)
	c.web.Page("GET /policies/{kind}/{name}", c.showPolicy)
	c.web.Page("POST /policies/{kind}/{name}", c.showPolicy)
	c.web.Page("POST /policies/{kind}/{name}/audit", c.auditPolicy)
}

// errNoConfiguration is the error of a page that needs a configuration.
func errNoConfiguration() error {
	return web.NotFound("there is no configuration (hint: gatehouse console --config DIR, or a cluster with --context NAME)")
}

// needConfiguration returns what decides, or an error if it is not known.
func (c *console) needConfiguration(ctx context.Context) (*loaded, error) {
	l, err := c.configuration(ctx)
	if err == nil && l == nil {
		err = errNoConfiguration()
	}
	return l, err
}

// policyList is what the page "policies" shows.
type policyList struct {
	Rows           []policyRow
	Pages          pager
	Exceptions     []exceptionRow
	ExceptionPages pager
	NotSent        notSent
	// Notes say what could not be read.
	Notes []error
	// Search is the text that names must contain.
	Search string
}

// policyRow is a policy or a profile.
type policyRow struct {
	Kind, Name, URL string
	Matches         string
	Actions         string
	State           state
	Exceptions      int
	Owner           string
}

// exceptionRow is an exception.
type exceptionRow struct {
	Namespace, Name string
	Policies        []exceptedPolicy
	Reason          string
	Expiry          expiry
	State           state
	Defined         string
}

// exceptedPolicy is a policy that an exception names.
type exceptedPolicy struct {
	Kind, Name, URL string
	Rules           []string
}

// notSent is what is not sent to Gatehouse.
type notSent struct {
	// Webhooks are those of the cluster. Without them, Conditions and Namespaces are those of a new install.
	Webhooks   []sentWebhook
	Conditions []admissionregistrationv1.MatchCondition
	Namespaces []string
}

func policyURL(kind, name string) string {
	return "/policies/" + url.PathEscape(kind) + "/" + url.PathEscape(name)
}

// showPolicies shows all policies, profiles and exceptions.
func (c *console) showPolicies(r *http.Request) (*web.View, error) {
	l, err := c.needConfiguration(r.Context())
	if err != nil {
		return nil, err
	}
	states := c.readStates(r.Context(), l)
	data := &policyList{Notes: slices.Concat(l.Unread, states.errs), Search: r.URL.Query().Get("q")}
	data.Rows, data.Pages = paginate(r, "page", policyRows(l, states, data.Search))
	data.Exceptions, data.ExceptionPages = paginate(r, "exceptions", c.exceptionRows(l, states, allExceptions(l)))
	data.NotSent = c.notSent(r.Context(), &data.Notes)
	view := &web.View{Title: "Policies and profiles", Template: "policies", Data: data}
	if c.config != "" {
		view.Command = []string{"lint", "--config", c.config}
	}
	return view, nil
}

// policyRows returns a row for each policy and profile whose name contains a text.
func policyRows(l *loaded, states *states, search string) (rows []policyRow) {
	policies := l.policies()
	for i := range policies {
		p := &policies[i]
		state := states.of(p.Kind, "", p.Name, p.Source)
		rows = append(rows, policyRow{
			Kind: p.Kind, Name: p.Name, URL: policyURL(p.Kind, p.Name), Matches: matchSummary(p.Spec.MatchConstraints),
			Actions: actionsOf(p, l.bindingsOf(p)), State: state,
			Exceptions: len(l.exceptionsOf(p)), Owner: cmp.Or(ownerOf(p.Annotations), state.owner),
		})
	}
	for i := range l.Config.Sidecar.Profiles {
		p := &l.Config.Sidecar.Profiles[i]
		injection := string(p.Spec.Injection)
		if injection == "" {
			injection = "OptIn"
		}
		state := states.of(profileKind, "", p.Name, p.Source)
		rows = append(rows, policyRow{
			Kind: profileKind, Name: p.Name, URL: policyURL(profileKind, p.Name), Matches: profileSummary(&p.Spec), Actions: injection,
			State: state, Owner: cmp.Or(ownerOf(p.Annotations), state.owner),
		})
	}
	return slices.DeleteFunc(rows, func(row policyRow) bool { return !strings.Contains(row.Name, search) })
}

func allExceptions(l *loaded) []*policy.Exception {
	all := make([]*policy.Exception, len(l.Config.Policy.Exceptions))
	for i := range l.Config.Policy.Exceptions {
		all[i] = &l.Config.Policy.Exceptions[i]
	}
	return all
}

// exceptionRows returns a row for each exception: what ends first comes first, and what does not end comes last.
func (c *console) exceptionRows(l *loaded, states *states, exceptions []*policy.Exception) []exceptionRow {
	policies := l.policies()
	rows := make([]exceptionRow, len(exceptions))
	for i, e := range exceptions {
		row := exceptionRow{
			Namespace: e.Namespace, Name: e.Name, Reason: e.Spec.Reason, Expiry: newExpiry(e.Spec.ExpiresAt, c.now()),
			State: states.of(exceptionKind, e.Namespace, e.Name, e.Source), Defined: c.definedAt(e.Source),
		}
		for _, of := range e.Spec.Policies {
			one := exceptedPolicy{Kind: of.Kind, Name: of.Name, Rules: of.Rules}
			for j := range policies {
				if p := &policies[j]; p.Name == of.Name && (of.Kind == "" || of.Kind == p.Kind) {
					one.URL = policyURL(p.Kind, p.Name)
				}
			}
			row.Policies = append(row.Policies, one)
		}
		rows[i] = row
	}
	slices.SortStableFunc(rows, func(a, b exceptionRow) int {
		if x, y := a.Expiry.At, b.Expiry.At; x.IsZero() != y.IsZero() {
			if x.IsZero() {
				return 1
			}
			return -1
		}
		return a.Expiry.At.Compare(b.Expiry.At)
	})
	return rows
}

// notSent returns what is not sent to Gatehouse: by the webhook configurations of the cluster, or by those of a new install.
func (c *console) notSent(ctx context.Context, notes *[]error) (out notSent) {
	if !c.isOffline() {
		webhooks, errs := c.webhooks(ctx)
		*notes = append(*notes, errs...)
		if len(webhooks) > 0 {
			return notSent{Webhooks: webhooks}
		}
		if len(errs) == 0 {
			*notes = append(*notes, errors.New("no webhook of Gatehouse is registered in the cluster: the API server asks it nothing (hint: gatehouse manifests)"))
		}
	}
	out.Conditions, out.Namespaces = registration.NeverSent()
	return out
}

// isFromCluster reports whether an object is one of the cluster.
func isFromCluster(source string) bool { return source == config.ClusterSource }
