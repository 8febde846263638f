#!/bin/sh
# webhook-ignore-and-timeouts.sh: failurePolicy Ignore does not admit a request whose time ends while webhooks are called.
#
#	sh findings/webhook-ignore-and-timeouts.sh
#
# A request has 34 seconds at most, and less if the client gives it a timeout, as leader election, kubelets and `kubectl --request-timeout` do. If it ends during a mutating webhook, the request
# fails with "Timeout", although Ignore stands in every webhook. So a webhook saves nobody whose own timeout is not longer than its timeoutSeconds. Mutating webhooks are called one after another and
# add up: four that do not answer, with the default of 10 seconds, are enough for every request. Validating ones are called at once. Here timeoutSeconds is 1, and the plugins are the API server's own.
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
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"time"

	"github.com/go-logr/logr"
	registration "k8s.io/api/admissionregistration/v1"
	core "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/mutating"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/validating"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/util/webhook"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
)

// second is the timeoutSeconds of the webhooks, none of which answers.
const second = int32(1)

func main() {
	klog.SetLogger(logr.Discard())
	silent := httptest.NewUnstartedServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		<-r.Context().Done()
	}))
	silent.Config.ErrorLog = log.New(io.Discard, "", 0)
	silent.StartTLS()
	changed := false
	for _, c := range []struct {
		name       string
		mutating   bool
		webhooks   int
		forRequest time.Duration
		want       bool
	}{
		{"one mutating webhook, 5 s for the request", true, 1, 5 * time.Second, true},
		{"one mutating webhook, 0.5 s for the request", true, 1, 500 * time.Millisecond, false},
		{"three validating webhooks, 2.5 s for the request", false, 3, 2500 * time.Millisecond, true},
		{"three mutating webhooks, 2.5 s for the request", true, 3, 2500 * time.Millisecond, false},
	} {
		err := review(silent, c.mutating, c.webhooks, c.forRequest)
		fmt.Printf("%s: admitted %t\n", c.name, err == nil)
		if err != nil {
			fmt.Println("   ", err)
		}
		changed = changed || (err == nil) != c.want
	}
	if changed {
		fmt.Println("this has changed")
		os.Exit(1)
	}
}

// review returns what the plugin says if all webhooks are silent and have failurePolicy Ignore.
func review(silent *httptest.Server, mutates bool, n int, forRequest time.Duration) error {
	ignore, equivalent, none, timeout := registration.Ignore, registration.Equivalent, registration.SideEffectClassNone, second
	authority := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: silent.Certificate().Raw})
	validators := &registration.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "validators"}}
	mutators := &registration.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "mutators"}}
	for i := range n {
		v := registration.ValidatingWebhook{
			Name: fmt.Sprintf("webhook-%d.example.org", i), ClientConfig: registration.WebhookClientConfig{URL: &silent.URL, CABundle: authority},
			FailurePolicy: &ignore, MatchPolicy: &equivalent, SideEffects: &none, TimeoutSeconds: &timeout, AdmissionReviewVersions: []string{"v1"},
			NamespaceSelector: &metav1.LabelSelector{}, ObjectSelector: &metav1.LabelSelector{},
			Rules: []registration.RuleWithOperations{{
				Operations: []registration.OperationType{registration.Create},
				Rule:       registration.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"configmaps"}},
			}},
		}
		validators.Webhooks = append(validators.Webhooks, v)
		mutators.Webhooks = append(mutators.Webhooks, registration.MutatingWebhook{
			Name: v.Name, ClientConfig: v.ClientConfig, FailurePolicy: v.FailurePolicy, MatchPolicy: v.MatchPolicy, SideEffects: v.SideEffects, TimeoutSeconds: v.TimeoutSeconds,
			AdmissionReviewVersions: v.AdmissionReviewVersions, NamespaceSelector: v.NamespaceSelector, ObjectSelector: v.ObjectSelector, Rules: v.Rules,
		})
	}
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	client := fake.NewClientset(validators, mutators, &core.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "default"}})
	factory := informers.NewSharedInformerFactory(client, 0)
	validator, err := validating.NewValidatingAdmissionWebhook(nil)
	check(err)
	mutator, err := mutating.NewMutatingWebhook(nil)
	check(err)
	for _, p := range []interface {
		SetAuthenticationInfoResolverWrapper(webhook.AuthenticationInfoResolverWrapper)
		SetServiceResolver(webhook.ServiceResolver)
		ValidateInitialization() error
	}{validator, mutator} {
		p.SetAuthenticationInfoResolverWrapper(func(webhook.AuthenticationInfoResolver) webhook.AuthenticationInfoResolver { return anonymous{} })
		p.SetServiceResolver(noServices{})
	}
	validator.SetExternalKubeClientSet(client)
	validator.SetExternalKubeInformerFactory(factory)
	mutator.SetExternalKubeClientSet(client)
	mutator.SetExternalKubeInformerFactory(factory)
	check(validator.ValidateInitialization())
	check(mutator.ValidateInitialization())
	factory.Start(ctx.Done())
	factory.WaitForCacheSync(ctx.Done())
	object := &core.ConfigMap{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"}, ObjectMeta: metav1.ObjectMeta{Name: "object", Namespace: "default"}}
	attributes := admission.NewAttributesRecord(object, nil, core.SchemeGroupVersion.WithKind("ConfigMap"), "default", "object",
		core.SchemeGroupVersion.WithResource("configmaps"), "", admission.Create, &metav1.CreateOptions{}, false, &user.DefaultInfo{Name: "somebody"})
	forThis, cancel := context.WithTimeout(ctx, forRequest)
	defer cancel()
	if mutates {
		return mutator.Admit(forThis, attributes, admission.NewObjectInterfacesFromScheme(scheme.Scheme))
	}
	return validator.Validate(forThis, attributes, admission.NewObjectInterfacesFromScheme(scheme.Scheme))
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
