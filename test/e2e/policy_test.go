package e2e

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gatehouse-dev/gatehouse/test/support"
)

// policyCase is a request, and what policies decide about it.
type policyCase struct {
	Name string
	// Namespace is where the request is made, unless the test has its own.
	Namespace string
	apiRequest
	// Refused is the message behind the name of the webhook, "" if the request is admitted. Of a case with causes it is the
	// beginning.
	Refused  string
	Code     int32
	Causes   []metav1.StatusCause
	Warnings []string
}

func (c *policyCase) run(t *testing.T, w *world, namespace string) {
	warnings, err := c.send(t, w, namespace, false)
	var got metav1.Status
	if err != nil {
		var status apierrors.APIStatus
		if !errors.As(err, &status) || !strings.Contains(err.Error(), byWebhook) {
			t.Fatal(err)
		}
		got = status.Status()
		_, got.Message, _ = strings.Cut(got.Message, byWebhook)
	}
	if got.Message != c.Refused && (c.Causes == nil || !strings.HasPrefix(got.Message, c.Refused)) || c.Code != 0 && got.Code != c.Code {
		t.Errorf("got %d %q, want %d %q", got.Code, got.Message, c.Code, c.Refused)
	}
	if !slices.Equal(warnings, c.Warnings) {
		t.Errorf("got the warnings %q, want %q", warnings, c.Warnings)
	}
	if c.Causes != nil && (got.Details == nil || !slices.Equal(got.Details.Causes, c.Causes)) {
		t.Errorf("got %+v, want the causes %+v", got.Details, c.Causes)
	}
}

func TestPolicies(t *testing.T) {
	t.Parallel()
	w := sharedWorld(t)
	_, err := w.Client().CoreV1().Pods("standard").Create(t.Context(), pod("plain"), metav1.CreateOptions{})
	must(t, err)
	var cases []policyCase
	readTable(t, "policies.yaml", &cases)
	for i := range cases {
		t.Run(cases[i].Name, func(t *testing.T) {
			t.Parallel()
			cases[i].run(t, w, cases[i].Namespace)
		})
	}
}

func TestPolicyWarnsAndAudits(t *testing.T) {
	t.Parallel()
	w := sharedWorld(t)
	client, warnings := w.impersonating(t, nil)
	for _, name := range []string{"odd", "even"} {
		_, err := client.CoreV1().ConfigMaps("rules").Create(t.Context(), configMap(name, nil, "a=1", "b=2"), metav1.CreateOptions{})
		must(t, err)
	}
	if want := []string{"Validation failed for AdmissionPolicy 'advice': an odd name"}; !slices.Equal(warnings(), want) {
		t.Errorf("got the warnings %q, want %q", warnings(), want)
	}
	for name, failed := range map[string]bool{"odd": true, "even": false} {
		support.Eventually(t, "the audit log", func() error {
			annotations, err := w.audited("create", "configmaps", "rules", name)
			if err == nil && (annotations[failing+"advice_keys"] != "2" || strings.Contains(annotations[failing+"validation_failure"], `"message":"an odd name"`) != failed) {
				err = fmt.Errorf("%s: the annotations are %q", name, annotations)
			}
			return err
		})
	}
}
