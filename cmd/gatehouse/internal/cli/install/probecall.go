package install

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strconv"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission/plugin/webhook"
	webhookutil "k8s.io/apiserver/pkg/util/webhook"

	"github.com/gatehouse-dev/gatehouse/certs"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cli"
)

// webhookTimeout is that of a webhook without timeoutSeconds.
const webhookTimeout = 10 * time.Second

// webhookCall calls a webhook of a configuration as the API server does: at the address of the Service or the URL, for its
// name, and trusting the caBundle alone.
type webhookCall struct {
	// configuration is KIND/NAME, or the address of a server without a configuration.
	configuration, name string
	rules               []admissionregistrationv1.RuleWithOperations

	webhook webhook.WebhookAccessor
	config  admissionregistrationv1.WebhookClientConfig
	// address is that of the Service, with the port.
	address string
}

// readWebhooks returns the webhooks of both configurations of a name, in their order. With an error, those that could be read.
func readWebhooks(ctx context.Context, client certs.Client, name string) ([]webhookCall, error) {
	registrations := client.AdmissionregistrationV1()
	mutating, mutatingErr := registrations.MutatingWebhookConfigurations().Get(ctx, name, metav1.GetOptions{})
	validating, validatingErr := registrations.ValidatingWebhookConfigurations().Get(ctx, name, metav1.GetOptions{})
	var calls []webhookCall
	if mutatingErr == nil {
		for i := range mutating.Webhooks {
			w := &mutating.Webhooks[i]
			calls = append(calls, webhookCall{
				configuration: "MutatingWebhookConfiguration/" + name, name: w.Name, rules: w.Rules, config: w.ClientConfig,
				webhook: webhook.NewMutatingWebhookAccessor("", "MutatingWebhookConfiguration/"+name, w),
			})
		}
	}
	if validatingErr == nil {
		for i := range validating.Webhooks {
			calls = append(calls, ofValidating("ValidatingWebhookConfiguration/"+name, &validating.Webhooks[i]))
		}
	}
	return calls, errors.Join(mutatingErr, validatingErr)
}

func ofValidating(configuration string, w *admissionregistrationv1.ValidatingWebhook) webhookCall {
	return webhookCall{configuration: configuration, name: w.Name, rules: w.Rules, config: w.ClientConfig, webhook: webhook.NewValidatingWebhookAccessor("", configuration, w)}
}

// callAt returns a call of a server outside of the cluster, at a URL. A caBundle that is empty stands for the CAs of this machine.
func callAt(target *url.URL, name string, caBundle []byte) webhookCall {
	return ofValidating(target.Scheme+"://"+target.Host, &admissionregistrationv1.ValidatingWebhook{
		Name: name, ClientConfig: admissionregistrationv1.WebhookClientConfig{URL: new(target.String()), CABundle: caBundle},
	})
}

// locate reads the address of the Service.
func (c *webhookCall) locate(ctx context.Context, client certs.Client) error {
	reference := c.config.Service
	if reference == nil || c.address != "" {
		return nil
	}
	service, err := client.CoreV1().Services(reference.Namespace).Get(ctx, reference.Name, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("cannot read the Service %s/%s: %w", reference.Namespace, reference.Name, err)
	}
	const https = 443
	port := int32(https)
	if reference.Port != nil {
		port = *reference.Port
	}
	c.address = net.JoinHostPort(service.Spec.ClusterIP, strconv.Itoa(int(port)))
	return nil
}

// ResolveEndpoint implements webhookutil.ServiceResolver.
func (c *webhookCall) ResolveEndpoint(string, string, int32) (*url.URL, error) {
	return &url.URL{Scheme: "https", Host: c.address}, nil
}

// send sends a review, with the client of the API server, and returns the response.
func (c *webhookCall) send(ctx context.Context, review *admissionv1.AdmissionReview) (*admissionv1.AdmissionResponse, error) {
	if c.config.Service != nil && len(c.config.CABundle) == 0 {
		return nil, errors.New("caBundle is empty, so the API server does not trust any certificate (hint: a replica that runs, cert-manager, or the issuer of the certificate writes it; see 'gatehouse certs status')")
	}
	manager, err := webhookutil.NewClientManager([]schema.GroupVersion{admissionv1.SchemeGroupVersion}, admissionv1.AddToScheme)
	if err != nil {
		return nil, err
	}
	noCertificates, err := webhookutil.NewDefaultAuthenticationInfoResolver("")
	if err != nil {
		return nil, err
	}
	manager.SetAuthenticationInfoResolver(noCertificates)
	manager.SetServiceResolver(c)
	client, err := c.webhook.GetRESTClient(&manager)
	if err != nil {
		return nil, err
	}
	timeout := webhookTimeout
	if seconds := c.webhook.GetTimeoutSeconds(); seconds != nil {
		timeout = time.Duration(*seconds) * time.Second
	}
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, fmt.Errorf("no answer within %s, the timeout of the webhook", cli.FormatDuration(timeout)))
	defer cancel()
	var got admissionv1.AdmissionReview
	err = client.Post().MaxRetries(0).Body(review).Do(ctx).Into(&got)
	certificate, unverified := errors.AsType[*tls.CertificateVerificationError](err)
	switch {
	case err != nil && ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case unverified:
		return nil, fmt.Errorf("its caBundle does not verify the certificate: %w (hint: gatehouse certs status)", certificate.Err)
	case err != nil:
		return nil, err
	case got.Response == nil:
		return nil, errors.New("the answer is an AdmissionReview without a response")
	case got.Response.UID != review.Request.UID:
		return nil, fmt.Errorf("the response is for the request %.100q, not for %q", got.Response.UID, review.Request.UID)
	}
	return got.Response, nil
}
