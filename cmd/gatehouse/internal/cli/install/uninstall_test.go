package install

import (
	"bytes"
	"strings"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/kubernetes/scheme"
	clienttesting "k8s.io/client-go/testing"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cli"
)

// registered are both configurations of an install, whose validating webhook has this name and calls a Service in this namespace.
func registered(webhook, namespace string) []runtime.Object {
	to := admissionregistrationv1.WebhookClientConfig{Service: &admissionregistrationv1.ServiceReference{Namespace: namespace, Name: "gatehouse"}}
	named := metav1.ObjectMeta{Name: "gatehouse", UID: "1"}
	return []runtime.Object{
		&admissionregistrationv1.MutatingWebhookConfiguration{ObjectMeta: named, Webhooks: []admissionregistrationv1.MutatingWebhook{
			{Name: "asked.mutate.gatehouse.dev", ClientConfig: admissionregistrationv1.WebhookClientConfig{URL: new("https://192.0.2.1")}},
		}},
		&admissionregistrationv1.ValidatingWebhookConfiguration{ObjectMeta: named, Webhooks: []admissionregistrationv1.ValidatingWebhook{{Name: webhook, ClientConfig: to}}},
	}
}

// server is a pod of a server, or one that is being deleted.
func server(name, namespace string, ends bool) runtime.Object {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace, Labels: map[string]string{
		"app.kubernetes.io/name": "gatehouse", "app.kubernetes.io/component": "server",
	}}}
	if ends {
		pod.DeletionTimestamp, pod.Finalizers = new(metav1.Unix(1, 0)), []string{"example.com/ends"}
	}
	return pod
}

// deletions are the resources of which an object was deleted, with the UIDs that were asked for.
func deletions(client *fake.FakeDynamicClient) string {
	var list []string
	for _, action := range client.Actions() {
		if d, ok := action.(clienttesting.DeleteActionImpl); ok {
			list = append(list, d.Resource.Resource+" "+string(*d.DeleteOptions.Preconditions.UID))
		}
	}
	return strings.Join(list, ", ")
}

// TestUninstall: both configurations go, and no others; what is left is said.
func TestUninstall(t *testing.T) {
	t.Parallel()
	const ours, both = "fail.validate.gatehouse.dev", "mutatingwebhookconfigurations 1, validatingwebhookconfigurations 1"
	refused := func(verb string, after int) func(*fake.FakeDynamicClient) {
		return func(c *fake.FakeDynamicClient) {
			c.PrependReactor(verb, "validatingwebhookconfigurations", func(clienttesting.Action) (bool, runtime.Object, error) {
				after--
				return after < 0, nil, apierrors.NewForbidden(schema.GroupResource{Resource: "validatingwebhookconfigurations"}, "gatehouse", nil)
			})
		}
	}
	for name, c := range map[string]struct {
		objects []runtime.Object
		flags   uninstallFlags
		change  func(*fake.FakeDynamicClient)
		deleted string
		says    string
		code    int
	}{
		"ours": {objects: registered(ours, "gatehouse-system"), flags: uninstallFlags{yes: true}, deleted: both, says: "deleted ValidatingWebhookConfiguration/gatehouse\n"},
		"a replica still runs": {
			objects: append(registered(ours, "gatehouse-system"), server("gatehouse-a", "gatehouse-system", false), server("gatehouse-b", "gatehouse-system", true), server("other", "shop", false)),
			flags:   uninstallFlags{yes: true}, deleted: both, says: "still running in namespace gatehouse-system, and called by no API server any more: gatehouse-a\n",
		},
		"none":                 {flags: uninstallFlags{yes: true}, says: "nothing to delete"},
		"of somebody else":     {objects: registered("policy.example.org", "gatehouse-system"), flags: uninstallFlags{yes: true}, says: `nothing was deleted: the webhook "policy.example.org"`, code: cli.ExitNo},
		"of another namespace": {objects: registered(ours, "security"), flags: uninstallFlags{yes: true}, says: "does not belong to Gatehouse in the namespace gatehouse-system", code: cli.ExitNo},
		"dry run":              {objects: registered(ours, "gatehouse-system"), flags: uninstallFlags{dryRun: true}, says: "would delete ValidatingWebhookConfiguration/gatehouse\n"},
		"nobody to ask":        {objects: registered(ours, "gatehouse-system"), says: "needs a confirmation", code: cli.ExitUnknown},
		"no right to delete": {
			objects: registered(ours, "gatehouse-system"), flags: uninstallFlags{yes: true}, change: refused("delete", 0), deleted: both,
			says: "ValidatingWebhookConfiguration/gatehouse may remain: validatingwebhookconfigurations \"gatehouse\" is forbidden", code: cli.ExitUnknown,
		},
		"no right to read": {objects: registered(ours, "gatehouse-system"), flags: uninstallFlags{yes: true}, change: refused("get", 0), says: "nothing was deleted: ", code: cli.ExitUnknown},
		"created again": {
			objects: registered(ours, "gatehouse-system"), flags: uninstallFlags{yes: true}, deleted: both, says: "was created again", code: cli.ExitUnknown,
			change: func(c *fake.FakeDynamicClient) {
				c.PrependReactor("delete", "validatingwebhookconfigurations", func(clienttesting.Action) (bool, runtime.Object, error) {
					again := &unstructured.Unstructured{Object: map[string]any{
						"apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingWebhookConfiguration", "metadata": map[string]any{"name": "gatehouse", "uid": "2"},
					}}
					return false, nil, c.Tracker().Add(again)
				})
			},
		},
		"that stays": {
			objects: registered(ours, "gatehouse-system"), flags: uninstallFlags{yes: true, installFlags: installFlags{timeout: 10 * time.Millisecond}},
			change: func(c *fake.FakeDynamicClient) {
				c.PrependReactor("delete", "*", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, nil })
			},
			deleted: "mutatingwebhookconfigurations 1", says: "its deletion was requested and has not ended: gave up after --timeout 10ms", code: cli.ExitUnknown,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			client := fake.NewSimpleDynamicClient(scheme.Scheme, c.objects...)
			if c.change != nil {
				c.change(client)
			}
			f := c.flags
			f.name, f.namespace = "gatehouse", "gatehouse-system"
			if f.timeout == 0 {
				f.timeout = time.Minute
			}
			var out bytes.Buffer
			err := f.run(t.Context(), client, "https://192.0.2.1", cli.Streams{In: strings.NewReader(""), Out: &out, Err: &out})
			code := 0
			if err != nil {
				out.WriteString(err.Error())
				code = cli.WorstCode(err)
			}
			if code != c.code || !strings.Contains(out.String(), c.says) || deletions(client) != c.deleted {
				t.Errorf("it ends with %d, says %q and has deleted %q", code, out.String(), deletions(client))
			}
		})
	}
}
