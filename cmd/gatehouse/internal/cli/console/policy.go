package console

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/audit"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/audit/summary"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cli"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cli/console/web"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cli/decision"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/install"
	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
	"github.com/gatehouse-dev/gatehouse/webhooks/policy"
	"github.com/gatehouse-dev/gatehouse/webhooks/sidecar"
)

// computeTimeout bounds what a page computes while the browser waits.
const computeTimeout = 30 * time.Second

// policyPage is what the pages "policy" and "profile" show.
type policyPage struct {
	Kind, Name string
	Defined    string
	Owner      string
	State      state
	// Policy and Bindings are set for a policy.
	Policy   *policyDoc
	Match    string
	Actions  string
	Bindings []bindingRow
	// Profile and Revision are set for a profile.
	Profile    *sidecar.Profile
	Revision   string
	Parameters []parameterRow
	Exceptions []exceptionRow

	HasCluster   bool
	Findings     []auditFinding
	FindingPages pager

	Example  example
	Recorded *recordedEffects
	Notes    []error
}

// bindingRow is a binding of a policy.
type bindingRow struct{ Name, Defined, Actions, Rest string }

// parameterRow is a parameter of a profile.
type parameterRow struct{ Name, Type, Default, Description string }

// showPolicy shows a policy or a profile.
func (c *console) showPolicy(r *http.Request) (*web.View, error) {
	l, err := c.needConfiguration(r.Context())
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(r.Context(), computeTimeout)
	defer cancel()
	data := &policyPage{Kind: r.PathValue("kind"), Name: r.PathValue("name"), HasCluster: !c.isOffline(), Notes: l.Unread}
	states := c.readStates(ctx, l)
	data.Notes = slices.Concat(data.Notes, states.errs)
	if !c.fillPolicy(data, l, states) && !c.fillProfile(data, l, states) {
		return nil, web.NotFound("there is no %s %q", cli.InertName(data.Kind), cli.InertName(data.Name))
	}
	if data.HasCluster {
		found, errs := c.auditFindings(ctx, data.Kind, data.Name)
		data.Findings, data.FindingPages = paginate(r, "findings", found)
		data.Notes = append(data.Notes, errs...)
	}
	if data.Example, err = c.example(ctx, r, data.Kind, data.Name); err != nil {
		return nil, err
	}
	if data.Recorded, err = c.recordedEffects(ctx, data.Kind, data.Name); err != nil {
		return nil, err
	}
	view := &web.View{Title: data.Kind + " " + data.Name, Template: "policy", Data: data}
	if data.Example.File != "" {
		view.Command = append(append([]string{"explain"}, c.sourceWords()...), "-f", data.Example.File)
	}
	return view, nil
}

// fillPolicy fills in a policy, and returns false if there is none.
func (c *console) fillPolicy(data *policyPage, l *loaded, states *states) bool {
	policies := l.policies()
	at := slices.IndexFunc(policies, func(p policyDoc) bool { return p.Kind == data.Kind && p.Name == data.Name })
	if at < 0 {
		return false
	}
	p := &policies[at]
	bindings := l.bindingsOf(p)
	data.Policy, data.Match, data.Actions = p, asYAML(p.Spec.MatchConstraints), actionsOf(p, bindings)
	data.Defined, data.State = c.definedAt(p.Source), states.of(p.Kind, "", p.Name, p.Source)
	data.Owner = cmp.Or(ownerOf(p.Annotations), data.State.owner)
	for i := range bindings {
		b := &bindings[i]
		row := bindingRow{Name: b.Kind + " " + b.Name, Defined: c.definedAt(b.Source)}
		for _, action := range b.Spec.ValidationActions {
			row.Actions = strings.TrimPrefix(row.Actions+", "+string(action), ", ")
		}
		rest := *b.Spec
		rest.PolicyName, rest.ValidationActions = "", nil
		if text := asYAML(rest); strings.TrimSpace(text) != "{}" {
			row.Rest = text
		}
		data.Bindings = append(data.Bindings, row)
	}
	data.Exceptions = c.exceptionRows(l, states, l.exceptionsOf(p))
	return true
}

// PodSecurity returns the checks of a policy as YAML, "" for none.
func (p *policyDoc) PodSecurity() string {
	if p.Own == nil || p.Own.PodSecurity == nil {
		return ""
	}
	return asYAML(p.Own.PodSecurity)
}

// Templates says whether the policy checks pod templates, and ExistingViolations what happens to objects that violate it already.
func (p *policyDoc) Templates() string {
	if p.Own == nil {
		return ""
	}
	return string(cmp.Or(p.Own.WorkloadTemplates, v1alpha1.CheckTemplates))
}

// ExistingViolations says what happens to an update of an object that violates the policy already.
func (p *policyDoc) ExistingViolations() string {
	if p.Own == nil {
		return ""
	}
	return string(cmp.Or(p.Own.ExistingViolations, v1alpha1.AllowExisting))
}

// fillProfile fills in a profile, and returns false if there is none.
func (c *console) fillProfile(data *policyPage, l *loaded, states *states) bool {
	profiles := l.Config.Sidecar.Profiles
	at := slices.IndexFunc(profiles, func(p sidecar.Profile) bool { return data.Kind == profileKind && p.Name == data.Name })
	if at < 0 {
		return false
	}
	p := &profiles[at]
	data.Profile, data.Revision, data.Match = p, l.Snapshot.Sidecar.Revision(p.Name), asYAML(p.Spec.Match)
	data.Defined, data.State = c.definedAt(p.Source), states.of(profileKind, "", p.Name, p.Source)
	data.Owner = cmp.Or(ownerOf(p.Annotations), data.State.owner)
	for i := range p.Spec.Parameters {
		parameter := &p.Spec.Parameters[i]
		row := parameterRow{Name: parameter.Name, Type: string(parameter.Type), Default: "required", Description: parameter.Description}
		if parameter.Default != nil {
			row.Default = strings.TrimSpace(asYAML(parameter.Default))
		}
		data.Parameters = append(data.Parameters, row)
	}
	return true
}

// Template returns what a profile adds, as YAML.
func (d *policyPage) Template() string { return asYAML(d.Profile.Spec.Template) }

// Settings returns the rest of a profile, as YAML.
func (d *policyPage) Settings() string {
	rest := d.Profile.Spec
	rest.Match, rest.Template, rest.Parameters = v1alpha1.SidecarMatch{}, v1alpha1.SidecarTemplate{}, nil
	if text := asYAML(rest); strings.TrimSpace(text) != "{}" {
		return text
	}
	return ""
}

// example are the values of expressions for a manifest.
type example struct {
	// Files are those of -f. File is the chosen one, and Text a manifest that was typed.
	Files      []string
	File, Text string
	// Objects are those that the policy or profile decides about, and Problems what the command says.
	Objects  []explained
	Problems []string
}

// explained is an object in the JSON of explain.
type explained struct {
	File      string             `json:"file"`
	Document  int                `json:"document"`
	Item      string             `json:"item"`
	Kind      string             `json:"kind"`
	Namespace string             `json:"namespace"`
	Name      string             `json:"name"`
	NoPod     string             `json:"noPod"`
	Profiles  []explainedProfile `json:"profiles"`
	Warnings  []string           `json:"warnings"`
	Policies  []explainedPolicy  `json:"policies"`
	Verdict   string             `json:"verdict"`
	Error     string             `json:"error"`
	// Others are policies that do not match, if they are not among Policies.
	Others []string `json:"-"`
}

// explainedPolicy is a policy in the JSON of explain.
type explainedPolicy policy.Evaluation

// expressionValue is the value of an expression, and What it is for.
type expressionValue struct {
	What string
	policy.Expression
}

// Values returns the values of all expressions but those of rules.
func (p explainedPolicy) Values() (out []expressionValue) {
	for _, of := range []struct {
		what string
		list []policy.Expression
	}{{"condition", p.Conditions}, {"variable", p.Variables}, {"audit annotation", p.AuditAnnotations}} {
		for _, x := range of.list {
			out = append(out, expressionValue{of.what, x})
		}
	}
	return out
}

// WhyText says why the policy was evaluated or not.
func (p explainedPolicy) WhyText() string { return decision.WhyText(p.Why) }

// explainedProfile is a profile in the JSON of explain.
type explainedProfile struct {
	Profile    string `json:"profile"`
	Reason     string `json:"reason"`
	Detail     string `json:"detail"`
	Revision   string `json:"revision"`
	Status     string `json:"status"`
	Steps      []struct{ Name, Result, Detail string }
	Parameters []struct{ Name, Value, From string }
	Adds       []string `json:"adds"`
}

// maxExampleObjects bounds the objects of an example.
const maxExampleObjects = 20

// example computes the values of a policy or profile for the manifest that the form names or has.
func (c *console) example(ctx context.Context, r *http.Request, kind, name string) (out example, err error) {
	out.Files = c.manifestFiles()
	out.File = r.URL.Query().Get("example")
	text := []byte(nil)
	switch {
	case r.Method == http.MethodPost:
		if err := r.ParseForm(); err != nil {
			return out, err
		}
		out.File, out.Text = "", r.PostForm.Get("manifest")
		text = []byte(out.Text)
	case out.File == "":
		return out, nil
	default:
		if text, err = c.readManifest(out.File); err != nil {
			return out, err
		}
	}
	if len(bytes.TrimSpace(text)) == 0 {
		return out, nil
	}
	result := c.execute(ctx, text, append(append([]string{"explain"}, c.sourceWords()...), "--allow-empty", "-f", "-", "-o", "json")...)
	out.Problems = result.problems()
	objects, err := decodeLines[explained](result.out)
	if err != nil {
		return out, err
	}
	for i := range objects {
		o := &objects[i]
		o.Policies = slices.DeleteFunc(o.Policies, func(p explainedPolicy) bool { return p.Kind != kind || p.Policy != name })
		o.Profiles = slices.DeleteFunc(o.Profiles, func(p explainedProfile) bool { return kind != profileKind || p.Profile != name })
		if len(o.Policies)+len(o.Profiles) > 0 && len(out.Objects) < maxExampleObjects {
			out.Objects = append(out.Objects, *o)
		}
	}
	return out, nil
}

// maxManifestFiles bounds the files of -f that are offered, and maxManifestBytes one of them.
const (
	maxManifestFiles = 500
	maxManifestBytes = 1 << 20
)

// manifestFiles returns the files of -f, and those in its directories.
func (c *console) manifestFiles() (files []string) {
	for _, path := range c.manifests {
		_ = filepath.WalkDir(path, func(name string, entry fs.DirEntry, err error) error { // what cannot be read is not offered
			isManifest := name == path || slices.Contains([]string{".yaml", ".yml", ".json"}, filepath.Ext(name))
			switch {
			case err != nil || len(files) == maxManifestFiles:
				return fs.SkipDir
			case !entry.IsDir() && isManifest:
				files = append(files, name)
			}
			return nil
		})
	}
	return files
}

// readManifest reads a file of -f. A URL can name no other file.
func (c *console) readManifest(name string) ([]byte, error) {
	if !slices.Contains(c.manifestFiles(), name) {
		return nil, web.NotFound("%q is not a file of --filename", cli.InertName(name))
	}
	file, err := os.Open(name) // #nosec G304 G703 -- a file of the command line
	if err != nil {
		return nil, fmt.Errorf("%s: %w", cli.InertName(name), cli.Cause(err))
	}
	defer func() { _ = file.Close() }() // it was only read
	text, err := io.ReadAll(io.LimitReader(file, maxManifestBytes+1))
	if err == nil && len(text) > maxManifestBytes {
		err = fmt.Errorf("has more than %d KiB", maxManifestBytes>>10)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", cli.InertName(name), cli.Cause(err))
	}
	return text, nil
}

// auditResult is what the template "audit" shows.
type auditResult struct {
	Rules    []summary.Rule
	Profiles []summary.Profile
	Objects  int64
	Complete bool
	Notes    []string
}

// auditPolicy audits the cluster, and shows what is found about a policy or profile.
func (c *console) auditPolicy(r *http.Request) (*web.View, error) {
	kind, name := r.PathValue("kind"), r.PathValue("name")
	if c.isOffline() {
		return nil, web.BadRequest("an audit needs a cluster (hint: gatehouse console --context NAME)")
	}
	job := c.web.Start(c.ctx, "Audit of "+cli.InertName(name), func(ctx context.Context, report func(web.Progress)) (*web.View, error) {
		data, err := c.runAudit(ctx, kind, name, report)
		return &web.View{Template: "audit", Data: data}, err
	})
	command := append([]string{"audit"}, c.sourceWords()...)
	for _, namespace := range c.namespaces {
		command = append(command, "-n", namespace)
	}
	return &web.View{Title: "Audit of " + kind + " " + name, Template: "started", Data: started{job, policyURL(kind, name), kind + " " + name}, Command: command}, nil
}

// started is a page with a job. URL and Text lead back.
type started struct {
	Job       *web.Job
	URL, Text string
}

// auditExamples is the number of examples of each rule and status.
const auditExamples = 20

// runAudit audits the cluster by what decides.
func (c *console) runAudit(ctx context.Context, kind, name string, report func(web.Progress)) (*auditResult, error) {
	source, err := c.Open(ctx, c.config)
	if err != nil {
		return nil, err
	}
	defer source.Close()
	loaded, err := source.Load(nil)
	if err != nil {
		return nil, err
	}
	names := make([]string, len(loaded.Config.Sidecar.Profiles))
	for i := range loaded.Config.Sidecar.Profiles {
		names[i] = loaded.Config.Sidecar.Profiles[i].Name
	}
	aggregator, objects := summary.New(auditExamples, names...), map[string]int64{}
	outcome, err := audit.Run(ctx, audit.Options{
		Access: source.Access, Config: loaded.Config, Snapshot: loaded.Snapshot, Namespaces: c.namespaces,
		Exclude: []string{"kube-system", "kube-node-lease", install.DefaultNamespace},
		Progress: func(of audit.Coverage) {
			objects[of.String()] = of.Objects
			sum := int64(0)
			for _, n := range objects {
				sum += n
			}
			report(web.Progress{Text: fmt.Sprintf("%s, %d objects so far", cli.InertName(of.Resource), sum)})
		},
	}, aggregator)
	if err != nil {
		return nil, source.Explain(err)
	}
	sum := aggregator.Summary()
	out := &auditResult{Objects: sum.Objects, Complete: outcome.Complete}
	for i := range sum.Rules {
		// Errors that are of no policy keep all of them from being decided.
		if of := &sum.Rules[i]; of.Kind == kind && of.Policy == name || of.Policy == "" {
			out.Rules = append(out.Rules, sum.Rules[i])
		}
	}
	for i := range sum.Injection {
		if kind == profileKind && sum.Injection[i].Profile == name {
			out.Profiles = append(out.Profiles, sum.Injection[i])
		}
	}
	for _, err := range source.Unread(loaded) {
		out.Notes = append(out.Notes, err.Error())
	}
	for _, s := range outcome.Skipped {
		if s.Kind == kind && s.Policy == name {
			out.Notes = append(out.Notes, strings.TrimSpace(s.Rule+" is skipped: "+s.Reason))
		}
	}
	for i := range outcome.Coverage {
		if of := &outcome.Coverage[i]; !of.Complete {
			out.Notes = append(out.Notes, of.GroupResource().String()+" is not read to the end: "+cmp.Or(of.Right, of.Problem))
		}
	}
	return out, nil
}
