package testrunner

import (
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/offline/request"
	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
	"github.com/gatehouse-dev/gatehouse/webhooks/config"
	"github.com/gatehouse-dev/gatehouse/webhooks/document/diagnostic"
	"github.com/gatehouse-dev/gatehouse/webhooks/document/strict"
)

// defaultNamespace is that of requests which say none, as in kubectl.
const defaultNamespace = "default"

// readCase reads one case of a test. Names are those of the cases before it.
func (d *document) readCase(i int, names map[string]int) {
	written := &d.test.Cases[i]
	c := &Case{
		Source: d.source, Test: cmp.Or(d.test.Metadata.Name, d.source), Name: written.Name, Field: strict.Element("cases", i),
		Inject: written.Inject == nil || *written.Inject,
		About:  d.about, Context: d.context, Expect: written.Expect,
	}
	if strings.TrimSpace(c.Name) == "" {
		d.report(c.Field+".name", "is missing", "the name says what is shown")
	} else if first, twice := names[c.Name]; twice {
		d.report(c.Field+".name", fmt.Sprintf("%q is the name of cases[%d], too", strict.Cut(c.Name, mostShown), first), "give one of the two another name")
	} else {
		names[c.Name] = i
	}
	if written.Now != nil {
		now := written.Now.Time
		c.Now = &now
	}
	before := len(d.found)
	c.Spec = request.Spec{
		Object:    d.object(c.Field, "object", written.Object, written.ObjectFile),
		OldObject: d.object(c.Field, "oldObject", written.OldObject, written.OldObjectFile),
		Operation: written.Operation, Namespace: cmp.Or(written.Namespace, defaultNamespace), Name: written.ObjectName,
		SubResource: written.SubResource,
	}
	c.Spec.User = request.WithGroups(*cmp.Or(written.User, &authenticationv1.UserInfo{Username: "gatehouse-test"}))
	if written.Options != nil {
		c.Spec.Options = written.Options.Raw
	}
	operations := []string{string(admissionv1.Create), string(admissionv1.Update), string(admissionv1.Delete), string(admissionv1.Connect)}
	if o := string(c.Spec.Operation); o != "" && !slices.Contains(operations, o) {
		d.report(c.Field+".operation", notAllowed(o, operations), diagnostic.DidYouMean(o, operations...))
	}
	c.broken = len(d.found) > before
	if text := d.object(c.Field+".expect", "object", c.Expect.Object, c.Expect.ObjectFile); text != nil {
		c.Expect.Object = &runtime.RawExtension{Raw: text}
	}
	d.expectation(c.Field+".expect", &c.Expect)
	d.cases = append(d.cases, c)
}

func notAllowed(value string, allowed []string) string {
	return fmt.Sprintf("%q is not allowed; allowed are %s", strict.Cut(value, mostShown), strings.Join(allowed, ", "))
}

// object returns an object that is written in the document or in a file, or nil.
func (d *document) object(field, name string, written *runtime.RawExtension, file string) []byte {
	inline := field + "." + name
	switch {
	case written != nil && file != "":
		d.report(inline+"File", "is given, and "+name+" too", "remove one of the two")
		return nil
	case written != nil:
		return written.Raw
	case file == "":
		return nil
	}
	inline += "File"
	path := file
	if !filepath.IsAbs(path) {
		path = filepath.Join(filepath.Dir(d.file), filepath.FromSlash(file))
	}
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		d.report(inline, fmt.Sprintf("%q is a directory, and must be a file that holds one object", strict.Cut(file, mostShown)), "")
		return nil
	}
	documents, found := config.Documents(path)
	for _, f := range found {
		f.Field = strings.TrimSuffix(f.Source+": "+f.Field, ": ")
		d.report(inline, f.Field+": "+f.Message, f.Hint)
	}
	if len(found) > 0 {
		return nil
	}
	if len(documents) != 1 {
		d.report(inline, fmt.Sprintf("%q holds %d documents, and must hold one object", strict.Cut(file, mostShown), len(documents)), "")
		return nil
	}
	text, err := json.Marshal(documents[0].Value)
	if err != nil {
		d.report(inline, err.Error(), "")
		return nil
	}
	return text
}

// expectation checks that an expectation can fail, and fills in the verdict.
func (d *document) expectation(field string, e *v1alpha1.TestExpectation) {
	verdicts := []string{string(v1alpha1.TestAllowed), string(v1alpha1.TestDenied), string(v1alpha1.TestCannotDecide)}
	if v := string(e.Verdict); v != "" && !slices.Contains(verdicts, v) {
		d.report(field+".verdict", notAllowed(v, verdicts), diagnostic.DidYouMean(v, verdicts...))
		return
	}
	if e.Verdict == "" && e.Violations == nil && e.Audited == nil && e.Warnings == nil && e.AuditAnnotations == nil && e.Exceptions == nil && !expectsObject(e) {
		d.report(field, "expects nothing, so the case cannot fail", "say at least the verdict: "+strings.Join(verdicts, ", "))
	}
	for name, all := range map[string][]v1alpha1.TestViolation{"violations": e.Violations, "audited": e.Audited} {
		for i := range all {
			if all[i].Message != nil && all[i].MessageContains != nil {
				d.report(strict.Element(field+"."+name, i)+".messageContains", "is given, and message too", "remove one of the two")
			}
		}
	}
	switch {
	case e.Verdict == "" && len(e.Violations) > 0:
		e.Verdict = v1alpha1.TestDenied
	case e.Verdict == "":
		e.Verdict = v1alpha1.TestAllowed
	}
}

// expectsObject reports whether an expectation is about the object after mutating policies and injection.
func expectsObject(e *v1alpha1.TestExpectation) bool {
	return e.Object != nil || e.ObjectFile != "" || e.Patch != nil
}
