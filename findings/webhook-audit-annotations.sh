#!/bin/sh
# webhook-audit-annotations.sh: which audit annotations of an admission webhook reach the audit event.
#
#	sh findings/webhook-audit-annotations.sh
#
# The API server puts the webhook's name and a slash before the key. A key that has a prefix of its own, as labels and annotations of objects may, is dropped, as is an empty one or one with a blank; the only trace is a line in
# the API server's log. Webhooks of the same name in two configurations share their keys: the first to answer wins, and as validating webhooks are called at once, that changes from one request to the next.
# The size has no limit, while the annotations of an admission policy are cut at 10 KiB. The plugin is the API server's own.
# It needs Go and its module proxy. It ends with 1 if this changes.
set -eu
behaviour=$(sed -n '/^#\t/,/^# It needs/{/^#\t/d;/^# It needs/d;s/^# //p;}' "$0")
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cd "$dir"
cat >main.go <<'EOF'
package main

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"slices"
	"strings"

	"github.com/go-logr/logr"
	admissionv1 "k8s.io/api/admission/v1"
	registration "k8s.io/api/admissionregistration/v1"
	core "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/validating"
	auditinternal "k8s.io/apiserver/pkg/apis/audit"
	"k8s.io/apiserver/pkg/audit"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/util/webhook"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
)

// answers are the audit annotations that the webhooks answer with, by path.
var answers = map[string]map[string]string{
	"/first":  {"plain": "1", "team/prefixed": "1", "": "1", "two words": "1", "large": strings.Repeat("x", 200_000)},
	"/second": {"plain": "2", "other": "2"},
}

func main() {
	klog.SetLogger(logr.Discard())
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var review admissionv1.AdmissionReview
		check(json.NewDecoder(r.Body).Decode(&review))
		review.Response = &admissionv1.AdmissionResponse{UID: review.Request.UID, Allowed: true, AuditAnnotations: answers[r.URL.Path]}
		check(json.NewEncoder(w).Encode(review))
	}))
	changed := false
	for _, c := range []struct {
		paths []string
		want  []string
	}{
		{[]string{"/first"}, []string{"webhook.example.org/large", "webhook.example.org/plain"}},
		{[]string{"/first", "/second"}, []string{"webhook.example.org/large", "webhook.example.org/other", "webhook.example.org/plain"}},
	} {
		annotations := review(server, c.paths)
		names := slices.Sorted(maps.Keys(annotations))
		fmt.Println("configurations", len(c.paths), "with a webhook of the same name:")
		for _, name := range names {
			fmt.Printf("    %s: %d bytes\n", name, len(annotations[name]))
		}
		changed = changed || !slices.Equal(names, c.want) || len(annotations["webhook.example.org/large"]) != 200_000 || len(annotations["webhook.example.org/plain"]) != 1
	}
	if changed {
		fmt.Println("this has changed")
		os.Exit(1)
	}
}

// review returns the annotations of the audit event of a request that webhooks of one name, each in its own configuration, review.
func review(server *httptest.Server, paths []string) map[string]string {
	fail, equivalent, none, timeout := registration.Fail, registration.Equivalent, registration.SideEffectClassNone, int32(10)
	client := fake.NewClientset(&core.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "default"}})
	for i, path := range paths {
		address := server.URL + path
		check(client.Tracker().Add(&registration.ValidatingWebhookConfiguration{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("configuration-", i)},
			Webhooks: []registration.ValidatingWebhook{{
				Name: "webhook.example.org",
				ClientConfig: registration.WebhookClientConfig{
					URL: &address, CABundle: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}),
				},
				FailurePolicy: &fail, MatchPolicy: &equivalent, SideEffects: &none, TimeoutSeconds: &timeout, AdmissionReviewVersions: []string{"v1"},
				NamespaceSelector: &metav1.LabelSelector{}, ObjectSelector: &metav1.LabelSelector{},
				Rules: []registration.RuleWithOperations{{
					Operations: []registration.OperationType{registration.Create},
					Rule:       registration.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"configmaps"}},
				}},
			}},
		}))
	}
	ctx, stop := context.WithCancel(audit.WithAuditContext(context.Background()))
	defer stop()
	check(audit.AuditContextFrom(ctx).Init(audit.RequestAuditConfig{Level: auditinternal.LevelMetadata}, nil))
	factory := informers.NewSharedInformerFactory(client, 0)
	plugin, err := validating.NewValidatingAdmissionWebhook(nil)
	check(err)
	plugin.SetAuthenticationInfoResolverWrapper(func(webhook.AuthenticationInfoResolver) webhook.AuthenticationInfoResolver { return anonymous{} })
	plugin.SetServiceResolver(noServices{})
	plugin.SetExternalKubeClientSet(client)
	plugin.SetExternalKubeInformerFactory(factory)
	check(plugin.ValidateInitialization())
	factory.Start(ctx.Done())
	factory.WaitForCacheSync(ctx.Done())
	object := &core.ConfigMap{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"}, ObjectMeta: metav1.ObjectMeta{Name: "object", Namespace: "default"}}
	attributes := admission.NewAttributesRecord(object, nil, core.SchemeGroupVersion.WithKind("ConfigMap"), "default", "object",
		core.SchemeGroupVersion.WithResource("configmaps"), "", admission.Create, &metav1.CreateOptions{}, false, &user.DefaultInfo{Name: "somebody"})
	check(admission.WithAudit(plugin).(admission.ValidationInterface).Validate(ctx, attributes, admission.NewObjectInterfacesFromScheme(scheme.Scheme)))
	return audit.AuditContextFrom(ctx).GetEventAnnotations()
}

// anonymous shows no certificate to the webhooks.
type anonymous struct{}

func (anonymous) ClientConfigFor(string) (*rest.Config, error) { return &rest.Config{}, nil }

func (anonymous) ClientConfigForService(string, string, int) (*rest.Config, error) {
	return &rest.Config{}, nil
}

type noServices struct{}

func (noServices) ResolveEndpoint(string, string, int32) (*url.URL, error) { return nil, io.EOF }

func check(err error) {
	if err != nil {
		panic(err)
	}
}
EOF
cat >go.mod <<'EOF'
module finding

go 1.26

require (
	github.com/go-logr/logr v1.4.3
	k8s.io/api v0.37.2
	k8s.io/apimachinery v0.37.2
	k8s.io/apiserver v0.37.2
	k8s.io/client-go v0.37.2
	k8s.io/klog/v2 v2.140.0
)
EOF
unset GOFLAGS
GOWORK=off go mod tidy >tidy.log 2>&1 || { cat tidy.log; exit 2; }
echo "version: github.com/go-logr/logr v1.4.3, k8s.io/api v0.37.2, k8s.io/apimachinery v0.37.2, k8s.io/apiserver v0.37.2, k8s.io/client-go v0.37.2, k8s.io/klog/v2 v2.140.0"
echo "behaviour: $behaviour"
echo "output:"
GOWORK=off go run .
