package console

import (
	"cmp"
	"context"
	"net/http"
	"slices"
	"time"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cli"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cli/console/web"
)

// computeTimeout bounds what a page computes while the browser waits.
const computeTimeout = 30 * time.Second

// policyPage is what the page "policy" shows of a policy or a profile.
type policyPage struct {
	Kind, Name string
	Defined    string
	Owner      string
	State      state
	// Document is the document as YAML.
	Document string
	// Bindings and Exceptions are those of a policy, and Revision is that of a profile.
	Actions    string
	Bindings   []bindingRow
	Exceptions []exceptionRow
	Revision   string
	IsProfile  bool

	HasCluster, HasRecordings bool
	Notes                     []error
	// IsPartial reports whether there are notes.
	IsPartial bool
}

// bindingRow is a binding of a policy.
type bindingRow struct{ Name, Defined, Spec string }

// showPolicy shows a policy or a profile.
func (c *console) showPolicy(r *http.Request) (*web.View, error) {
	l, err := c.needConfiguration(r.Context())
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(r.Context(), computeTimeout)
	defer cancel()
	data := &policyPage{Kind: r.PathValue("kind"), Name: r.PathValue("name"), HasCluster: !c.isOffline(), HasRecordings: c.canReplay()}
	states := c.readStates(ctx, l)
	data.Notes = slices.Concat(l.Unread, states.errs)
	if !c.fillPolicy(data, l, states) {
		return nil, web.NotFound("there is no %s %q", cli.InertName(data.Kind), cli.InertName(data.Name))
	}
	text, err := c.documentText(l, tryChoice{Kind: data.Kind, Name: data.Name})
	if err != nil {
		return nil, err
	}
	data.Document = string(text)
	return &web.View{Title: data.Kind + " " + data.Name, Template: "policy", Data: data}, nil
}

// fillPolicy fills in a policy or profile, and returns false if there is none.
func (c *console) fillPolicy(data *policyPage, l *loaded, states *states) bool {
	policies := l.policies()
	at := slices.IndexFunc(policies, func(p policyDoc) bool { return p.Kind == data.Kind && p.Name == data.Name })
	if at < 0 {
		return false
	}
	p := &policies[at]
	data.Actions, data.Defined, data.State = p.Actions, c.definedAt(p.Source), states.of(p.Kind, "", p.Name, p.Source)
	data.Owner = cmp.Or(ownerOf(p.Annotations), data.State.owner)
	if data.IsProfile = p.Kind == profileKind; data.IsProfile {
		data.Revision = l.Snapshot.Sidecar.Revision(p.Name)
		return true
	}
	for i := range p.Bindings {
		b := &p.Bindings[i]
		data.Bindings = append(data.Bindings, bindingRow{b.Kind + " " + b.Name, c.definedAt(b.Source), asYAML(b.Spec)})
	}
	data.Exceptions, data.IsPartial = c.exceptionRows(states, append(l.exceptionsOf(p), exceptionsOf(p, states.leftOut())...)), len(data.Notes) > 0
	return true
}

// auditPolicy audits the cluster. The output has the results of all policies and profiles.
func (c *console) auditPolicy(r *http.Request) (*web.View, error) {
	kind, name := r.PathValue("kind"), r.PathValue("name")
	if c.isOffline() {
		return nil, web.BadRequest("an audit needs a cluster (hint: gatehouse console --context NAME)")
	}
	command := append([]string{"audit"}, c.sourceWords()...)
	for _, namespace := range c.namespaces {
		command = append(command, "-n", namespace)
	}
	job := c.startCommand("Audit", func(context.Context) ([]string, func(string) string, func(), error) {
		return command, nil, func() {}, nil
	})
	return &web.View{Title: "Audit", Template: "started", Data: started{job, policyURL(kind, name), kind + " " + name}, Command: command}, nil
}

// started is a page with a job. URL and Text lead back.
type started struct {
	Job       *web.Job
	URL, Text string
}
