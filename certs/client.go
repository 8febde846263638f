package certs

import (
	"fmt"

	admissionregistrationv1client "k8s.io/client-go/kubernetes/typed/admissionregistration/v1"
	coordinationv1client "k8s.io/client-go/kubernetes/typed/coordination/v1"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
)

// Client is the part of kubernetes.Interface that certificates need. All of it would make
// the program much larger.
type Client interface {
	AdmissionregistrationV1() admissionregistrationv1client.AdmissionregistrationV1Interface
	CoordinationV1() coordinationv1client.CoordinationV1Interface
	CoreV1() corev1client.CoreV1Interface
}

type client struct {
	registrations *admissionregistrationv1client.AdmissionregistrationV1Client
	coordination  *coordinationv1client.CoordinationV1Client
	core          *corev1client.CoreV1Client
}

// NewClient returns a Client of an API server. It sends no request yet, so that an error is
// about the configuration.
func NewClient(config *rest.Config) (Client, error) {
	c := &client{}
	http, err := rest.HTTPClientFor(config)
	if err == nil {
		c.registrations, err = admissionregistrationv1client.NewForConfigAndClient(config, http)
	}
	if err == nil {
		c.coordination, err = coordinationv1client.NewForConfigAndClient(config, http)
	}
	if err == nil {
		c.core, err = corev1client.NewForConfigAndClient(config, http)
	}
	if err != nil {
		return nil, fmt.Errorf("cannot create a client for %s: %w", config.Host, err)
	}
	return c, nil
}

// AdmissionregistrationV1 implements Client.
func (c *client) AdmissionregistrationV1() admissionregistrationv1client.AdmissionregistrationV1Interface {
	return c.registrations
}

// CoordinationV1 implements Client.
func (c *client) CoordinationV1() coordinationv1client.CoordinationV1Interface { return c.coordination }

// CoreV1 implements Client.
func (c *client) CoreV1() corev1client.CoreV1Interface { return c.core }
