package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gatehouse-dev/gatehouse/test/support"
	"github.com/gatehouse-dev/gatehouse/test/support/gatehouse"
)

// rbacQuestion is what a user may do or not.
type rbacQuestion struct {
	user authenticationv1.UserInfo
	// path, or all that follows.
	verb, path, group, resource, subresource, namespace, name string
}

func rbacQuestions() []rbacQuestion {
	var all []rbacQuestion
	for _, who := range []authenticationv1.UserInfo{
		{Username: "rbac-user"},
		{Username: "rbac-nobody"},
		{Username: "rbac-nobody", Groups: []string{"x", "rbac-group"}},
		{Username: "rbac-group"},
		{Username: "rbac-reader", Groups: []string{"rbac-user"}},
		{Username: "rbac-browser"},
		{Username: "rbac-ghost"},
		{Username: "rbac-owner", Groups: []string{"rbac-owners"}},
		{Username: "rbac-root", Groups: []string{"system:masters"}},
		{Username: "system:serviceaccount:rules:robot"},
		{Username: "system:serviceaccount:order:robot", Groups: []string{"system:serviceaccounts:order"}},
	} {
		for _, verb := range []string{"get", "create", "delete", "*"} {
			for _, path := range []string{"/healthz", "/healthz/etcd", "/logs", "/logs/x", "/metrics", "/rbac-other"} {
				all = append(all, rbacQuestion{user: who, verb: verb, path: path})
			}
			for _, resource := range []string{"pods", "pods/log", "pods/exec", "secrets", "deployments.apps", "deployments.apps/scale", "widgets.x.example", "widgets.x.example/scale"} {
				full, subresource, _ := strings.Cut(resource, "/")
				plural, group, _ := strings.Cut(full, ".")
				for _, namespace := range []string{"", "rules", "order"} {
					for _, name := range []string{"", "a", "c"} {
						all = append(all, rbacQuestion{user: who, verb: verb, group: group, resource: plural, subresource: subresource, namespace: namespace, name: name})
					}
				}
			}
		}
	}
	return all
}

// review asks the API server.
func (q *rbacQuestion) review() *authorizationv1.SubjectAccessReview {
	spec := authorizationv1.SubjectAccessReviewSpec{User: q.user.Username, Groups: q.user.Groups}
	if q.path != "" {
		spec.NonResourceAttributes = &authorizationv1.NonResourceAttributes{Path: q.path, Verb: q.verb}
	} else {
		spec.ResourceAttributes = &authorizationv1.ResourceAttributes{
			Verb: q.verb, Group: q.group, Resource: q.resource, Subresource: q.subresource, Namespace: q.namespace, Name: q.name,
		}
	}
	return &authorizationv1.SubjectAccessReview{Spec: spec}
}

// admission asks Gatehouse.
func (q *rbacQuestion) admission() ([]byte, error) {
	object, err := json.Marshal(configMap("question", nil, "verb="+q.verb, "path="+q.path, "group="+q.group, "resource="+q.resource,
		"subresource="+q.subresource, "namespace="+q.namespace, "name="+q.name))
	if err != nil {
		return nil, err
	}
	resource, kind := metav1.GroupVersionResource{Version: "v1", Resource: "configmaps"}, metav1.GroupVersionKind{Version: "v1", Kind: "ConfigMap"}
	return json.Marshal(admissionv1.AdmissionReview{
		TypeMeta: metav1.TypeMeta{APIVersion: "admission.k8s.io/v1", Kind: "AdmissionReview"},
		Request: &admissionv1.AdmissionRequest{
			UID: types.UID("question"), Kind: kind, Resource: resource, RequestKind: &kind, RequestResource: &resource,
			Name: "question", Namespace: "default", Operation: admissionv1.Create, UserInfo: q.user, Object: runtime.RawExtension{Raw: object},
		},
	})
}

// What an expression learns of the authorizer from documents is what the API server answers, of which the same
// documents were applied.
func TestAuthorizerFromDocuments(t *testing.T) {
	t.Parallel()
	w := sharedWorld(t)
	must(t, w.apply(t.Context(), readDocuments(t, "rbac/rbac.yaml")))
	reviews := filepath.Join(t.TempDir(), "reviews.json")
	questions := rbacQuestions()
	var lines []byte
	for i := range questions {
		line, err := questions[i].admission()
		must(t, err)
		lines = append(append(lines, line...), '\n')
	}
	must(t, os.WriteFile(reviews, lines, 0o600))
	output, err := gatehouse.Run(t.Context(), "review", "validate", "--config", "testdata/rbac", reviews)
	if exit, ok := errors.AsType[*exec.ExitError](err); err != nil && (!ok || exit.ExitCode() != 1) {
		t.Fatal(err)
	}
	answers := strings.Split(strings.TrimSpace(output), "\n")
	if len(answers) != len(questions) {
		t.Fatalf("%d answers to %d questions: %.1000s", len(answers), len(questions), output)
	}

	// The API server's authorizer learns of each kind of objects by a watch of its own, in the order of the documents.
	client := w.Client().AuthorizationV1().SubjectAccessReviews()
	for _, last := range []rbacQuestion{
		{user: authenticationv1.UserInfo{Username: "rbac-browser"}, verb: "get", path: "/rbac-other"},
		{user: authenticationv1.UserInfo{Username: "rbac-reader"}, verb: "get", resource: "pods", namespace: "rules", name: "a"},
		{user: authenticationv1.UserInfo{Username: "rbac-owner", Groups: []string{"rbac-owners"}}, verb: "get", resource: "pods", namespace: "order"},
	} {
		support.Eventually(t, "what "+last.user.Username+" may do", func() error {
			answer, err := client.Create(t.Context(), last.review(), metav1.CreateOptions{})
			if err == nil && !answer.Status.Allowed {
				err = fmt.Errorf("not yet: %s", answer.Status.Reason)
			}
			return err
		})
	}
	var allowed int
	for i := range questions {
		want, err := client.Create(t.Context(), questions[i].review(), metav1.CreateOptions{})
		must(t, err)
		var got admissionv1.AdmissionReview
		must(t, json.Unmarshal([]byte(answers[i]), &got))
		if got.Response.Allowed != want.Status.Allowed || !got.Response.Allowed && got.Response.Result.Code != 422 {
			t.Errorf("%+v: Gatehouse says %s, the API server %+v", questions[i], answers[i], want.Status)
		}
		if want.Status.Allowed {
			allowed++
		}
	}
	if allowed < 300 || len(questions)-allowed < 300 {
		t.Errorf("of %d questions %d are answered with yes: the table shows nothing", len(questions), allowed)
	}
}
