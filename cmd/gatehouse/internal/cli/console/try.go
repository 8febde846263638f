package console

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"unicode"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cli"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cli/console/web"
	"github.com/gatehouse-dev/gatehouse/webhooks/document/diagnostic"
)

// addTry adds the page.
func (c *console) addTry() {
	c.web.Page("GET /try", c.showTry)
	c.web.Page("POST /try", c.computeTry)
}

// tryForm is what the form sends.
type tryForm struct {
	// Documents are the policies, profiles and exceptions that are edited.
	Documents string
	// Manifests are what is decided about, and Old the same objects before an update.
	Manifests, Old                     string
	User, Groups, Namespace, Operation string
}

// operations are the choices of the form.
func operations() []string { return []string{"CREATE", "UPDATE", "DELETE"} }

// readTryForm reads the form.
func readTryForm(r *http.Request) (tryForm, error) {
	if err := r.ParseForm(); err != nil {
		return tryForm{}, err //nolint:wrapcheck // the server says what is wrong with the form
	}
	get := func(name string) string { return strings.ReplaceAll(r.PostForm.Get(name), "\r\n", "\n") }
	f := tryForm{
		Documents: get("documents"), Manifests: get("manifests"), Old: get("old"), User: strings.TrimSpace(get("user")), Groups: get("groups"),
		Namespace: strings.TrimSpace(get("namespace")), Operation: get("operation"),
	}
	if !slices.Contains(operations(), f.Operation) {
		f.Operation = operations()[0]
	}
	return f, nil
}

// groups returns the groups of the user.
func (f *tryForm) groups() []string {
	return strings.FieldsFunc(f.Groups, func(r rune) bool { return r == ',' || unicode.IsSpace(r) })
}

// tryPage is what the page shows.
type tryPage struct {
	tryForm

	// Begin is the document of the URL, and Choices are documents to begin with.
	Begin   string
	Choices []objectKey
	// CanReplay reports whether there are recordings: those of the command line, or of the replicas.
	CanReplay bool
	Result    *tryResult
	// Replay is the output of replay, nil if that was not asked for.
	Replay *commandOutput
	// Notes say what of the configuration is not known.
	Notes []error
}

// starter is the document of the form if there is no other.
const starter = `apiVersion: gatehouse.dev/v1alpha1
kind: AdmissionPolicy
metadata:
  name: team-label
spec:
  matchConstraints:
    resourceRules:
      - apiGroups: [""]
        apiVersions: [v1]
        operations: [CREATE, UPDATE]
        resources: [pods]
  validations:
    - expression: '"team" in object.metadata.?labels.orValue({})'
      message: label it with your team
  validationActions: [Deny]
`

// starterPod is the manifest of the form.
const starterPod = `apiVersion: v1
kind: Pod
metadata:
  name: web
spec:
  containers:
    - name: web
      image: registry.example/web:1
`

// showTry shows the form. A document to begin with is named by the URL.
func (c *console) showTry(r *http.Request) (*web.View, error) {
	l, err := c.configuration(r.Context())
	if err != nil {
		return nil, err
	}
	query := r.URL.Query()
	data := c.newTryPage(tryForm{Documents: starter, Manifests: starterPod, Operation: "CREATE"}, l)
	if parts := strings.SplitN(query.Get("begin"), "/", 3); len(parts) == 3 {
		data.Begin = query.Get("begin")
		if data.Documents, err = c.documentText(l, objectKey{parts[0], parts[1], parts[2]}); err != nil {
			return nil, err
		}
	}
	return &web.View{Title: "Try", Template: "try", Data: data}, nil
}

// newTryPage returns the page with a form.
func (c *console) newTryPage(form tryForm, l *loaded) *tryPage {
	data := &tryPage{tryForm: form, CanReplay: len(c.recordingPaths()) > 0}
	if l == nil {
		return data
	}
	data.Notes = l.unread
	for _, o := range slices.Concat(l.policies, l.exceptions) {
		data.Choices = append(data.Choices, o.key())
	}
	return data
}

// computeTry computes what the candidate decides, or begins a replay.
func (c *console) computeTry(r *http.Request) (*web.View, error) {
	form, err := readTryForm(r)
	if err != nil {
		return nil, err
	}
	l, err := c.configuration(r.Context())
	if err != nil {
		return nil, err
	}
	data := c.newTryPage(form, l)
	isReplay := r.PostForm.Get("do") == "replay"
	timeout := computeTimeout
	if isReplay {
		timeout = replayTimeout
	}
	ctx, cancel := context.WithTimeout(r.Context(), timeout)
	defer cancel()
	if err := c.compute(ctx, l, data, isReplay); err != nil {
		return nil, err
	}
	command := append([]string{"check"}, c.sourceWords()...)
	if c.config == "" {
		command = append(command, "--config", "DIR")
		if !c.isOffline() {
			command = append(command, "--with-cluster")
		}
	}
	return &web.View{Title: "Try", Template: "try", Data: data, Command: append(command, "-f", "FILE")}, nil
}

// tryResult is what the candidate decides.
type tryResult struct {
	// Findings are those of lint.
	Findings diagnostic.List
	// Verdicts are the output of check, and Reasons that of explain.
	Verdicts, Reasons *commandOutput
	// Diff is what injection changes. NoDiff says why there is none.
	Diff   []diffLine
	NoDiff string
	// TimedOut reports that not all was computed in time.
	TimedOut bool
}

// compute computes what the candidate decides about the manifests or the recordings. There is one such computation at a time.
func (c *console) compute(ctx context.Context, l *loaded, page *tryPage, isReplay bool) error {
	if err := c.computing.Acquire(ctx, 1); err != nil {
		return errors.New("another computation takes too long (hint: try again)")
	}
	defer c.computing.Release(1)
	x, err := c.newCandidate(l, page.Documents, isReplay)
	if err != nil {
		return err
	}
	defer x.remove()
	if isReplay {
		page.Replay, err = c.replayCandidate(ctx, x)
		return err
	}
	out := &tryResult{}
	page.Result = out
	if err := c.lintCandidate(ctx, x, out); err != nil {
		return err
	}
	if out.Findings.Err() == nil && strings.TrimSpace(page.Manifests) != "" {
		if err := c.decideCandidate(ctx, x, &page.tryForm, out); err != nil {
			return err
		}
	}
	out.TimedOut = ctx.Err() != nil
	return nil
}

// lintCandidate adds what lint says about the edited documents. Of the rest, errors alone are added: they come from the change.
func (c *console) lintCandidate(ctx context.Context, x *candidate, out *tryResult) error {
	var report struct{ Findings diagnostic.List }
	if err := c.execute(ctx, nil, "lint", "--config", x.dir, "--allow-empty", "-o", "json").decode(&report); err != nil {
		return errors.New(x.cleanText(err.Error()))
	}
	file := filepath.ToSlash(filepath.Join(x.dir, candidateFile))
	for _, d := range report.Findings {
		isEdited := d.File == file
		if !isEdited && d.Severity != diagnostic.Error {
			continue
		}
		if !isEdited {
			d.Line, d.Column = 0, 0
		}
		d.Message = x.cleanText(d.Message)
		out.Findings = append(out.Findings, d)
	}
	return nil
}

// requestWords returns the flags that say who asks for what.
func (x *candidate) requestWords(form *tryForm) (words []string, err error) {
	if form.User != "" {
		words = append(words, "--as", form.User)
	}
	for _, group := range form.groups() {
		words = append(words, "--as-group", group)
	}
	if form.Operation != "UPDATE" {
		return append(words, "--operation", form.Operation), nil
	}
	if strings.TrimSpace(form.Old) == "" {
		return nil, web.BadRequest("an UPDATE needs the objects before it (hint: write them below \"Objects before an update\")")
	}
	file := filepath.Join(x.root, "old.yaml")
	if err := os.WriteFile(file, []byte(form.Old), 0o600); err != nil { // #nosec G703 -- below a directory of its own
		return nil, cli.Cause(err)
	}
	return append(words, "--old", file), nil
}

// decideCandidate adds verdicts, their reasons and what injection changes.
func (c *console) decideCandidate(ctx context.Context, x *candidate, form *tryForm, out *tryResult) error {
	asked, err := x.requestWords(form)
	if err != nil {
		return err
	}
	words := []string{"--config", x.dir, "--allow-empty", "-f", "-"}
	if form.Namespace != "" {
		words = append(words, "--namespace", form.Namespace)
	}
	if !c.isOffline() {
		words = append(words, c.ClusterFlags.Arguments()...)
	}
	out.Verdicts = c.execute(ctx, []byte(form.Manifests), slices.Concat([]string{"check"}, words, asked)...).show(x.cleanText)
	out.Reasons = c.execute(ctx, []byte(form.Manifests), slices.Concat([]string{"explain"}, words, asked)...).show(x.cleanText)
	c.injectCandidate(ctx, x, form, words, out)
	return nil
}

// injectCandidate adds what injection changes of the manifests.
func (c *console) injectCandidate(ctx context.Context, x *candidate, form *tryForm, words []string, out *tryResult) {
	if form.Operation != "CREATE" {
		out.NoDiff = "Sidecars are injected when a pod is created."
		return
	}
	injected := c.execute(ctx, []byte(form.Manifests), append([]string{"inject"}, words...)...)
	switch {
	case injected.code != cli.ExitYes:
		out.NoDiff = "Nothing is injected: " + x.cleanText(strings.Join(injected.problems(), " "))
	case bytes.Equal(injected.out, []byte(form.Manifests)):
		out.NoDiff = "Nothing is injected."
	default:
		out.Diff = diffOf([]byte(form.Manifests), injected.out)
	}
}
