package console

import (
	"cmp"
	"context"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cli"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cli/console/web"
	"github.com/gatehouse-dev/gatehouse/webhooks/config"
	"github.com/gatehouse-dev/gatehouse/webhooks/config/resolve"
	"github.com/gatehouse-dev/gatehouse/webhooks/mutation"
	"github.com/gatehouse-dev/gatehouse/webhooks/policy"
)

// addPolicies adds the page with all policies, and those of one policy or profile.
func (c *console) addPolicies() {
	c.web.Page("GET /policies", c.showPolicies)
	c.web.Page("GET /policies/{kind}/{name}", c.showPolicy)
	c.web.Page("POST /policies/{kind}/{name}/audit", c.auditPolicy)
}

// errNoConfiguration is the error of a page that needs a configuration.
func errNoConfiguration() error {
	return web.NotFound("there is no configuration (hint: gatehouse console --config DIR, or a cluster with --context NAME)")
}

// loaded is the configuration that the console shows.
type loaded struct {
	*resolve.CommandConfig

	// Unread says what of it is not known, as for lack of a right, or because a flag leaves it out.
	Unread []error
}

// configuration returns what decides: the directory, what is active in the cluster, or both. Without either, as with a recording
// alone, it is nil.
func (c *console) configuration(ctx context.Context) (*loaded, error) {
	if c.isOffline() {
		if c.config == "" {
			return nil, nil //nolint:nilnil // there is none
		}
		documents, snapshot, found := config.CompileDir(c.config)
		if snapshot == nil {
			return nil, config.InvalidError(c.config, found)
		}
		return &loaded{CommandConfig: &resolve.CommandConfig{Config: documents, Snapshot: snapshot, Found: found}}, nil
	}
	return c.load(ctx, &c.SourceFlags, c.config)
}

// load reads what decides in the cluster, by flags and a directory.
func (c *console) load(ctx context.Context, by *cli.SourceFlags, dir string) (*loaded, error) {
	source, err := by.Open(ctx, dir)
	if err != nil {
		return nil, err
	}
	defer source.Close()
	all, err := source.Load(ctx, nil)
	if err != nil {
		return nil, err
	}
	return &loaded{CommandConfig: all, Unread: append(source.Unread(all), source.Unconsidered()...)}, nil
}

// asked returns the configuration without the policies that the API server evaluates itself: webhooks answer without them.
func (l *loaded) asked() *config.Config {
	out := *l.Config
	out.Policy.Policies = slices.DeleteFunc(slices.Clone(out.Policy.Policies), func(p policy.Policy) bool { return isFromCluster(p.Source) })
	out.Policy.Bindings = slices.DeleteFunc(slices.Clone(out.Policy.Bindings), func(b policy.Binding) bool { return isFromCluster(b.Source) })
	out.Mutation.Policies = slices.DeleteFunc(slices.Clone(out.Mutation.Policies), func(p mutation.Policy) bool { return isFromCluster(p.Source) })
	out.Mutation.Bindings = slices.DeleteFunc(slices.Clone(out.Mutation.Bindings), func(b mutation.Binding) bool { return isFromCluster(b.Source) })
	return &out
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
	// Notes say what could not be read. IsPartial reports whether there is any.
	Notes     []error
	IsPartial bool
	// Search is the text that names must contain.
	Search string
}

// policyRow is a policy or a profile.
type policyRow struct {
	*policyDoc

	URL        string
	State      state
	Exceptions int
	Owner      string
}

// exceptionRow is an exception.
type exceptionRow struct {
	Namespace, Name string
	// Policies are their names, with the rules.
	Policies []string
	Reason   string
	Expiry   expiry
	State    state
	Defined  string
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
	data := &policyList{Notes: slices.Concat(l.Unread, states.errs), IsPartial: len(l.Unread)+len(states.errs) > 0, Search: r.URL.Query().Get("q")}
	data.Rows, data.Pages = paginate(r, "page", policyRows(l, states, data.Search))
	data.Exceptions, data.ExceptionPages = paginate(r, "exceptions", c.exceptionRows(states, append(allExceptions(l), states.leftOut()...)))
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
		rows = append(rows, policyRow{p, policyURL(p.Kind, p.Name), state, len(l.exceptionsOf(p)), cmp.Or(ownerOf(p.Annotations), state.owner)})
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
func (c *console) exceptionRows(states *states, exceptions []*policy.Exception) []exceptionRow {
	rows := make([]exceptionRow, len(exceptions))
	for i, e := range exceptions {
		row := exceptionRow{
			Namespace: e.Namespace, Name: e.Name, Reason: e.Spec.Reason, Expiry: newExpiry(e.Spec.ExpiresAt, c.now()),
			State: states.of(exceptionKind, e.Namespace, e.Name, e.Source), Defined: c.definedAt(e.Source),
		}
		for _, of := range e.Spec.Policies {
			row.Policies = append(row.Policies, strings.Join(append([]string{of.Name}, of.Rules...), " "))
		}
		rows[i] = row
	}
	never := time.Unix(1<<40, 0)
	slices.SortStableFunc(rows, func(a, b exceptionRow) int {
		return cmp.Or(a.Expiry.At, never).Compare(cmp.Or(b.Expiry.At, never))
	})
	return rows
}

// isFromCluster reports whether an object is one of the cluster.
func isFromCluster(source string) bool { return source == config.ClusterSource }
