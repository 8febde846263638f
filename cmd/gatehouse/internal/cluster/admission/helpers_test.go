package admission_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	webhookrequest "k8s.io/apiserver/pkg/admission/plugin/webhook/request"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
	"sigs.k8s.io/yaml"

	crdadmission "github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cluster/admission"
	"github.com/gatehouse-dev/gatehouse/webhooks/config"
	"github.com/gatehouse-dev/gatehouse/webhooks/review"
)

func must(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}

// configOf is the configuration of YAML documents.
func configOf(tb testing.TB, texts ...string) *config.Config {
	tb.Helper()
	dir := tb.TempDir()
	must(tb, os.WriteFile(filepath.Join(dir, "all.yaml"), []byte(strings.Join(append(texts, namespaceDocument), "\n---\n")), 0o600))
	c, err := config.Load(dir)
	must(tb, err)
	return c
}

// namespaceDocument is in every configuration, because a directory must not be
// empty.
const namespaceDocument = "{apiVersion: v1, kind: Namespace, metadata: {name: default}}"

// reviewer reviews beside a configuration that stands for what is in the cluster.
func reviewer(c *config.Config) *crdadmission.Reviewer {
	return crdadmission.New(func() *config.Config { return c })
}

// asJSON is a YAML document as JSON.
func asJSON(tb testing.TB, text string) []byte {
	tb.Helper()
	out, err := yaml.YAMLToJSON([]byte(text))
	must(tb, err)
	return out
}

// plurals are the resources of the kinds.
func plurals() map[string]string {
	return map[string]string{
		"SidecarProfile": "sidecarprofiles", "AdmissionPolicy": "admissionpolicies", "AdmissionPolicyBinding": "admissionpolicybindings",
		"PolicyException": "policyexceptions", "AccessToken": "accesstokens", "Grant": "grants", "TokenRevocation": "tokenrevocations",
	}
}

// about is the API server's request about a document: a creation, or an update if
// there is an old one.
func about(tb testing.TB, document, old string) admission.Request {
	tb.Helper()
	raw := asJSON(tb, document)
	var object metav1.PartialObjectMetadata
	must(tb, json.Unmarshal(raw, &object))
	kind := metav1.GroupVersionKind{Group: "gatehouse.dev", Version: "v1alpha1", Kind: object.Kind}
	resource := metav1.GroupVersionResource{Group: "gatehouse.dev", Version: "v1alpha1", Resource: plurals()[object.Kind]}
	r := admission.Request{AdmissionRequest: admissionv1.AdmissionRequest{
		UID: "1", Kind: kind, RequestKind: &kind, Resource: resource, RequestResource: &resource,
		Name: object.Name, Namespace: object.Namespace, Operation: admissionv1.Create, Object: runtime.RawExtension{Raw: raw},
	}}
	if old != "" {
		r.Operation, r.OldObject.Raw = admissionv1.Update, asJSON(tb, old)
	}
	return r
}

// text is a response as its reader understands it. It has been through the codec
// and the API server's own verification, unless it is no answer.
func text(tb testing.TB, response admission.Response) string {
	tb.Helper()
	if !response.Allowed && response.Result != nil && response.Result.Code >= 500 {
		return "cannot decide: " + response.Result.Message
	}
	encoded, err := review.AppendAdmission(nil, "1", &response)
	must(tb, err)
	var answer admissionv1.AdmissionReview
	must(tb, json.Unmarshal(encoded, &answer))
	verified, err := webhookrequest.VerifyAdmissionResponse("1", false, &answer)
	if err != nil {
		tb.Fatalf("the API server refuses %s: %v", encoded, err)
	}
	var out strings.Builder
	if verified.Allowed {
		out.WriteString("allowed\n")
	} else {
		status := verified.Result
		if status.Code != 422 || status.Reason != metav1.StatusReasonInvalid || status.Details == nil || status.Details.Group != "gatehouse.dev" || status.Details.Kind == "" {
			tb.Errorf("kubectl would not take it for a validation: %+v", status)
		}
		out.WriteString(status.Message + "\n")
		if len(status.Message) > 16<<10 {
			tb.Errorf("the message has %d bytes", len(status.Message))
		}
		for _, cause := range status.Details.Causes {
			if cause.Field == "" || !strings.Contains(status.Message, cause.Message) {
				tb.Errorf("cause %+v is not one of the message's: %s", cause, status.Message)
			}
		}
	}
	if len(verified.Warnings) != len(response.Warnings) || len(verified.Warnings) > 10 {
		tb.Errorf("%d warnings, of which %d are passed on", len(response.Warnings), len(verified.Warnings))
	}
	for _, warning := range verified.Warnings {
		if utf8.RuneCountInString(warning) > 200 || strings.ContainsFunc(warning, func(r rune) bool { return r < ' ' || r == 0x7f }) {
			tb.Errorf("warning %q", warning)
		}
		out.WriteString("warning: " + warning + "\n")
	}
	return out.String()
}
