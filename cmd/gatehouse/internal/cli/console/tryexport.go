package console

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cli"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cli/console/web"
	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
)

// exportTest returns a Test document that expects what the candidate decides.
func (c *console) exportTest(r *http.Request) (*web.File, error) {
	form, err := readTryForm(r)
	if err != nil {
		return nil, err
	}
	l, err := c.configuration(r.Context())
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(r.Context(), computeTimeout)
	defer cancel()
	result, err := c.try(ctx, l, &form)
	if err != nil {
		return nil, err
	}
	if err := result.Findings.Err(); err != nil {
		return nil, web.BadRequest("the documents have errors:\n%w", err)
	}
	test, err := newTest(&form, result)
	if err != nil {
		return nil, err
	}
	return &web.File{Name: "gatehouse-test.yaml", Type: "application/yaml", Data: []byte(asYAML(test))}, nil
}

// newTest returns a test with a case for each object that policies and injection decide about.
func newTest(form *tryForm, result *tryResult) (*v1alpha1.Test, error) {
	manifests, old := splitDocuments("", []byte(form.Manifests)), map[documentKey]*document{}
	for _, d := range splitDocuments("", []byte(form.Old)) {
		old[d.documentKey] = &d
	}
	test := &v1alpha1.Test{TypeMeta: metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "Test"}, Metadata: v1alpha1.TestMetadata{Name: "tried"}}
	for i := range result.Objects {
		o := &result.Objects[i]
		if o.Item != "" || o.Document > len(manifests) || o.isInvalid() {
			continue
		}
		d := &manifests[o.Document-1]
		one := v1alpha1.TestCase{
			Name: fmt.Sprintf("%s %s is %s", o.Kind, o.Name, strings.ReplaceAll(o.Verdict, "-", " ")), Operation: admissionv1.Operation(form.Operation),
			Namespace: form.Namespace, Object: d.extension(),
		}
		switch form.Operation {
		case "DELETE":
			one.Object, one.OldObject = nil, one.Object
		case "UPDATE":
			if before := old[d.documentKey]; before != nil {
				one.OldObject = before.extension()
			} else {
				one.Operation = admissionv1.Create
			}
		}
		if form.User != "" || len(form.groups()) > 0 {
			one.User = &authenticationv1.UserInfo{Username: cmp.Or(form.User, "gatehouse-check"), Groups: form.groups()}
		}
		switch o.Verdict {
		case "refused":
			one.Expect.Verdict = v1alpha1.TestDenied
		case "cannot-decide":
			one.Expect.Verdict = v1alpha1.TestCannotDecide
		default:
			one.Expect.Verdict = v1alpha1.TestAllowed
		}
		test.Cases = append(test.Cases, one)
	}
	if len(test.Cases) == 0 {
		return nil, web.BadRequest("no manifest can be a test (hint: write an object that is valid, and that is no item of a list)")
	}
	return test, nil
}

// isInvalid reports whether the API server refuses the object by its schema, which tests do not check.
func (o *triedObject) isInvalid() bool {
	return slices.ContainsFunc(o.Violations, func(v checkViolation) bool {
		return v.Kind != admissionPolicyKind && v.Kind != nativePolicyKind && v.Kind != profileKind
	})
}

// extension returns the object as JSON, nil if it cannot be read.
func (d *document) extension() *runtime.RawExtension {
	raw, err := json.Marshal(d.Fields)
	if err != nil || d.Fields == nil {
		return nil
	}
	return &runtime.RawExtension{Raw: raw}
}

// tryComment returns a result as a comment for a pull request.
func tryComment(r *tryResult) string {
	var b strings.Builder
	line := func(format string, args ...any) { _, _ = fmt.Fprintf(&b, format+"\n", args...) } // to memory
	line("### Gatehouse: what this change decides\n")
	if r.Findings.Err() != nil {
		line("The documents have errors, so that nothing is decided.\n")
	}
	if len(r.Objects) > 0 {
		line("| object | verdict | why |\n|---|---|---|")
	}
	for i := range r.Objects {
		o := &r.Objects[i]
		var why []string
		for _, v := range o.Violations {
			why = append(why, v.Effect+": "+markdown(v.Text()))
		}
		if o.Error != "" {
			why = append(why, markdown(o.Error))
		}
		line("| %s | %s | %s |", markdown(o.Title()), strings.ReplaceAll(o.Verdict, "-", " "), strings.Join(why, "<br>"))
	}
	if len(r.Findings) > 0 {
		line("\nLint:\n")
	}
	for _, d := range r.Findings {
		place := ""
		if d.Line > 0 {
			place = fmt.Sprintf(", line %d", d.Line)
		}
		line("- %s%s: %s", d.Severity, place, markdown(d.Message))
	}
	return b.String()
}

// Title returns kind, namespace and name of an object.
func (o *checkedObject) Title() string {
	return documentKey{Kind: o.Kind, Namespace: o.Namespace, Name: o.Name}.String()
}

// markdown returns a text of strangers as code, which Markdown does not interpret.
func markdown(text string) string {
	return "`" + strings.NewReplacer("`", "'", "|", `\|`).Replace(cli.Inert(text)) + "`"
}
