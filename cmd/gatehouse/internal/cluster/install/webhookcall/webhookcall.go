// Package webhookcall calls the webhooks of configurations as the API server does: at the address of the Service or the URL,
// for its name, and trusting the caBundle alone.
package webhookcall

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
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
	webhookrequest "k8s.io/apiserver/pkg/admission/plugin/webhook/request"
	webhookutil "k8s.io/apiserver/pkg/util/webhook"

	"github.com/gatehouse-dev/gatehouse/certs"
)

// defaultTimeout is that of a webhook without timeoutSeconds.
const defaultTimeout = 10 * time.Second

// Call is a webhook of a configuration.
type Call struct {
	// Configuration is KIND/NAME, or the address of a server without a configuration.
	Configuration, Webhook string
	Rules                  []admissionregistrationv1.RuleWithOperations

	webhook webhook.WebhookAccessor
	config  admissionregistrationv1.WebhookClientConfig
	// address is that of the Service, with the port.
	address string
	// asksForCertificate is set by Handshake.
	asksForCertificate bool
}

// untrusted returns the error of a verification.
func untrusted(err error) error {
	return fmt.Errorf("its caBundle does not verify the certificate: %w (hint: gatehouse certs status)", err)
}

// Read returns the webhooks of both configurations of a name, in their order. With an error, those that could be read.
func Read(ctx context.Context, client certs.Client, name string) ([]Call, error) {
	registrations := client.AdmissionregistrationV1()
	mutating, mutatingErr := registrations.MutatingWebhookConfigurations().Get(ctx, name, metav1.GetOptions{})
	validating, validatingErr := registrations.ValidatingWebhookConfigurations().Get(ctx, name, metav1.GetOptions{})
	var calls []Call
	if mutatingErr == nil {
		for i := range mutating.Webhooks {
			w := &mutating.Webhooks[i]
			calls = append(calls, Call{
				Configuration: "MutatingWebhookConfiguration/" + name, Webhook: w.Name, Rules: w.Rules, config: w.ClientConfig,
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

func ofValidating(configuration string, w *admissionregistrationv1.ValidatingWebhook) Call {
	return Call{Configuration: configuration, Webhook: w.Name, Rules: w.Rules, config: w.ClientConfig, webhook: webhook.NewValidatingWebhookAccessor("", configuration, w)}
}

// At returns a call of a server outside of the cluster, at a URL. A caBundle that is empty stands for the CAs of this machine.
func At(target *url.URL, name string, caBundle []byte) Call {
	to, configuration := admissionregistrationv1.WebhookClientConfig{URL: new(target.String()), CABundle: caBundle}, target.Scheme+"://"+target.Host
	w := &admissionregistrationv1.MutatingWebhook{Name: name, ClientConfig: to}
	return Call{Configuration: configuration, Webhook: name, config: to, webhook: webhook.NewMutatingWebhookAccessor("", configuration, w)}
}

// Locate reads the address of the Service.
func (c *Call) Locate(ctx context.Context, client certs.Client) error {
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
func (c *Call) ResolveEndpoint(string, string, int32) (*url.URL, error) {
	return &url.URL{Scheme: "https", Host: c.address}, nil
}

// checkBundle returns an error if there is nothing to verify a certificate with.
func (c *Call) checkBundle() error {
	if c.config.Service != nil && len(c.config.CABundle) == 0 {
		return errors.New("caBundle is empty, so the API server does not trust any certificate (hint: a replica that runs, cert-manager, or the issuer of the certificate writes it; see 'gatehouse certs status')")
	}
	return nil
}

// Handshake makes a connection, and sends nothing. The error is that the certificate is not trusted, or that there is no connection.
func (c *Call) Handshake(ctx context.Context) error {
	if err := c.checkBundle(); err != nil {
		return err
	}
	config := &tls.Config{
		MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"},
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			c.asksForCertificate = true
			return new(tls.Certificate), nil // none
		},
	}
	if len(c.config.CABundle) > 0 {
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(c.config.CABundle) {
			return untrusted(errors.New("it has no certificate that can be read"))
		}
	}
	address := c.address
	if reference := c.config.Service; reference != nil {
		config.ServerName = reference.Name + "." + reference.Namespace + ".svc"
	} else {
		target, err := url.Parse(*c.config.URL)
		if err != nil {
			return err
		}
		config.ServerName = target.Hostname()
		address = net.JoinHostPort(target.Hostname(), cmp.Or(target.Port(), "443"))
	}
	connection, err := (&tls.Dialer{Config: config}).DialContext(ctx, "tcp", address)
	if certificate, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		return untrusted(certificate.Err)
	}
	if err != nil {
		return err
	}
	_ = connection.Close() // nothing was sent
	return nil
}

// AsksForCertificate reports whether the server asked for a client certificate during Handshake.
func (c *Call) AsksForCertificate() bool { return c.asksForCertificate }

// Send sends a review, with the client of the API server, and returns the response. Late returns the error after a timeout.
func (c *Call) Send(ctx context.Context, review *admissionv1.AdmissionReview, late func(timeout time.Duration) error) (*admissionv1.AdmissionResponse, error) {
	if err := c.checkBundle(); err != nil {
		return nil, err
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
	timeout := defaultTimeout
	if seconds := c.webhook.GetTimeoutSeconds(); seconds != nil {
		timeout = time.Duration(*seconds) * time.Second
	}
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, late(timeout))
	defer cancel()
	var got admissionv1.AdmissionReview
	err = client.Post().MaxRetries(0).Body(review).Do(ctx).Into(&got)
	certificate, unverified := errors.AsType[*tls.CertificateVerificationError](err)
	switch {
	case err != nil && ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case unverified:
		return nil, untrusted(certificate.Err)
	case err != nil:
		return nil, err
	}
	_, isValidating := c.webhook.GetValidatingWebhook()
	if _, err := webhookrequest.VerifyAdmissionResponse(review.Request.UID, !isValidating, &got); err != nil {
		return nil, fmt.Errorf("the API server takes this for no answer, and failurePolicy decides: %w", err)
	}
	return got.Response, nil
}
