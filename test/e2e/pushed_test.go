package e2e

import (
	"context"
	"errors"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/gatehouse-dev/gatehouse/test/support"
	"github.com/gatehouse-dev/gatehouse/test/support/gatehouse"
)

// Match conditions of policies are evaluated by the API server: Gatehouse is not even there, so that a request that is
// to be decided is refused, and one that a condition leaves out passes.
func TestPushedMatchConditions(t *testing.T) {
	t.Parallel()
	w := sharedWorld(t)
	const namespace = "rules"
	must(t, w.apply(t.Context(), readDocuments(t, "pushed-roles.yaml")))
	// Nobody listens at the port.
	documents, err := gatehouse.Run(t.Context(), "manifests", "--name", "pushed", "--config", "testdata/pushed", "--url", "https://127.0.0.1:1", "--ca-file", w.path("ca.crt"))
	must(t, err)
	if !strings.Contains(documents, "name: policies\n") {
		t.Fatalf("no condition is pushed:\n%s", documents)
	}

	as := func(user string, groups ...string) kubernetes.Interface { return w.clientFor(t, user, groups...) }
	writer := as("pushed-writer", "pushed")
	limits := func(labels, annotations map[string]string) *corev1.LimitRange {
		return &corev1.LimitRange{ObjectMeta: metav1.ObjectMeta{Name: "x", Labels: labels, Annotations: annotations}}
	}
	for name, annotations := range map[string]map[string]string{"kept": {"keep": "yes"}, "free": {"keep": "no"}, "plain": nil} {
		object := limits(map[string]string{"skip": "yes"}, annotations)
		object.Name = name
		// What the writer may do becomes known by a watch.
		support.Eventually(t, "a LimitRange", func() error {
			_, err := writer.CoreV1().LimitRanges(namespace).Create(t.Context(), object, metav1.CreateOptions{})
			return err
		})
	}
	creates := func(client kubernetes.Interface, labels map[string]string) func(context.Context) error {
		return func(ctx context.Context) error {
			_, err := client.CoreV1().LimitRanges(namespace).Create(ctx, limits(labels, nil), dryRun)
			return err
		}
	}
	deletes := func(name string) func(context.Context) error {
		return func(ctx context.Context) error {
			return writer.CoreV1().LimitRanges(namespace).Delete(ctx, name, metav1.DeleteOptions{DryRun: dryRun.DryRun})
		}
	}
	must(t, w.apply(t.Context(), documents))
	t.Cleanup(func() { w.unregister(t, "pushed", creates(writer, nil)) })
	notThere := func(err error) error {
		if err == nil {
			return errors.New("the request passes")
		}
		if !strings.Contains(err.Error(), "failed calling webhook") {
			return err
		}
		return nil
	}
	support.Eventually(t, "the registration", func() error { return notThere(creates(writer, nil)(t.Context())) })
	for name, c := range map[string]struct {
		request func(context.Context) error
		sent    bool
	}{
		"somebody":                      {creates(writer, nil), true},
		"with another label":            {creates(writer, map[string]string{"other": "yes"}), true},
		"with the label's other value":  {creates(writer, map[string]string{"skip": "no"}), true},
		"with the label":                {creates(writer, map[string]string{"skip": "yes"}), false},
		"the robot":                     {creates(as("pushed-robot", "pushed"), nil), false},
		"a breaker":                     {creates(as("pushed-writer", "pushed", "pushed-breakers"), nil), false},
		"one who may":                   {creates(as("pushed-writer", "system:masters"), nil), false},
		"deletion of what is kept":      {deletes("kept"), true},
		"deletion of what is not":       {deletes("free"), false},
		"deletion of what says nothing": {deletes("plain"), false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := c.request(t.Context())
			if c.sent {
				err = notThere(err)
			}
			if err != nil {
				t.Error(err)
			}
		})
	}
}
