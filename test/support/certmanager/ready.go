package certmanager

import (
	"context"
	"errors"
	"fmt"
	"time"

	certmanagerv1 "github.com/cert-manager/cert-manager/pkg/apis/certmanager/v1"
	cmmetav1 "github.com/cert-manager/cert-manager/pkg/apis/meta/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gatehouse-dev/gatehouse/test/support"
)

const (
	probeName = "probe-"
	// probeTime is how long a controller has to do something about a new object. It is asked again, with another one: a
	// program that has ended meanwhile is noticed in between.
	probeTime = 2 * time.Second
)

// issues returns nil if a new issuer becomes ready.
func (m *CertManager) issues(ctx context.Context) error {
	issuers := m.client.CertmanagerV1().Issuers(Namespace)
	issuer, err := issuers.Create(ctx, &certmanagerv1.Issuer{
		ObjectMeta: metav1.ObjectMeta{GenerateName: probeName},
		Spec: certmanagerv1.IssuerSpec{
			IssuerConfig: certmanagerv1.IssuerConfig{SelfSigned: &certmanagerv1.SelfSignedIssuer{}},
		},
	}, metav1.CreateOptions{FieldManager: fieldManager})
	if err != nil {
		return fmt.Errorf("create an issuer: %w", err)
	}
	err = probe(ctx, func(ctx context.Context) error {
		found, err := issuers.Get(ctx, issuer.Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		for _, condition := range found.Status.Conditions {
			if condition.Type == certmanagerv1.IssuerConditionReady && condition.Status == cmmetav1.ConditionTrue {
				return nil
			}
		}
		return fmt.Errorf("the issuer %s/%s is not ready, its conditions are %v", Namespace, issuer.Name, found.Status.Conditions)
	})
	return errors.Join(err, issuers.Delete(ctx, issuer.Name, metav1.DeleteOptions{}))
}

// injects returns nil if the caBundle of a new webhook configuration is written.
func (m *CertManager) injects(ctx context.Context) error {
	sideEffects := admissionregistrationv1.SideEffectClassNone
	url := "https://127.0.0.1:1" // it is never called: there are no rules
	configurations := m.cluster.Client().AdmissionregistrationV1().ValidatingWebhookConfigurations()
	configuration, err := configurations.Create(ctx, &admissionregistrationv1.ValidatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{
			GenerateName: probeName,
			Annotations:  map[string]string{certmanagerv1.WantInjectAPIServerCAAnnotation: "true"},
		},
		Webhooks: []admissionregistrationv1.ValidatingWebhook{{
			Name:                    "probe.gatehouse.test",
			ClientConfig:            admissionregistrationv1.WebhookClientConfig{URL: &url},
			SideEffects:             &sideEffects,
			AdmissionReviewVersions: []string{"v1"},
		}},
	}, metav1.CreateOptions{FieldManager: fieldManager})
	if err != nil {
		return fmt.Errorf("create a webhook configuration: %w", err)
	}
	err = probe(ctx, func(ctx context.Context) error {
		found, err := configurations.Get(ctx, configuration.Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if len(found.Webhooks[0].ClientConfig.CABundle) == 0 {
			return fmt.Errorf("the webhook configuration %s has no caBundle", configuration.Name)
		}
		return nil
	})
	return errors.Join(err, configurations.Delete(ctx, configuration.Name, metav1.DeleteOptions{}))
}

func probe(ctx context.Context, ask func(context.Context) error) error {
	ctx, cancel := context.WithTimeoutCause(ctx, probeTime, fmt.Errorf("nothing happened for %s", probeTime))
	defer cancel()
	return support.Poll(ctx, func() error { return ask(ctx) })
}
