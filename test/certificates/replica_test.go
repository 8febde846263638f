package certificates

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/gatehouse-dev/gatehouse/certs"
	"github.com/gatehouse-dev/gatehouse/certs/cabundle"
	certsource "github.com/gatehouse-dev/gatehouse/certs/source"
	certstore "github.com/gatehouse-dev/gatehouse/certs/store"
	"github.com/gatehouse-dev/gatehouse/test/support"
)

// secret is the name of a hook's Secret, and of the group of its replicas.
const secret = "ca"

// replicaConfig says how a replica differs from others.
type replicaConfig struct {
	Name string
	// Kubeconfig says how to reach the API server, but for its URL if Server is not "".
	Kubeconfig, Server string
	// Hook is the name of the hook, and Host that by which the API server calls.
	Hook, Host string
	// These are as in certsource.SelfSignedConfig.
	Hold, EmergencyHold, EmergencyWait, Interval time.Duration
}

// replica is a server with a certificate from the library, which keeps the hook's registration up to date.
type replica struct {
	*server
	config    replicaConfig
	source    *certsource.SelfSigned
	watcher   *cabundle.Watcher
	publisher *cabundle.Publisher

	cancel  context.CancelFunc
	running sync.WaitGroup

	mu     sync.Mutex
	events []certs.Event
}

func startReplica(ctx context.Context, config replicaConfig) (*replica, error) {
	r := &replica{config: config}
	access, err := clientcmd.BuildConfigFromFlags(config.Server, config.Kubeconfig)
	if err != nil {
		return nil, err
	}
	access.QPS = -1
	client, err := kubernetes.NewForConfig(access)
	if err != nil {
		return nil, err
	}
	registration, err := cabundle.ParseRegistration("validating/" + config.Hook)
	if err != nil {
		return nil, err
	}
	r.watcher = cabundle.NewWatcher(cabundle.WatcherConfig{
		Client: client, Registrations: []cabundle.Registration{registration}, Hosts: []string{config.Host}, Notify: r.note,
	})
	r.source, err = certsource.NewSelfSigned(ctx, certsource.SelfSignedConfig{
		Hosts: []string{config.Host}, Store: certstore.NewSecretStore(certstore.SecretStoreConfig{Client: client, Namespace: config.Hook, Name: secret}), Trust: r.watcher, Replica: config.Name, Version: "test",
		Replicas: certstore.NewLeases(certstore.LeasesConfig{Client: client, Namespace: config.Hook, Group: secret, Replica: config.Name}),
		Interval: config.Interval,
		Hold:     config.Hold, EmergencyHold: config.EmergencyHold, EmergencyWait: config.EmergencyWait,
		Notify: r.note,
	})
	if err != nil {
		return nil, err
	}
	r.publisher = cabundle.NewPublisher(cabundle.PublisherConfig{
		Client: client, Watcher: r.watcher, Authorities: r.source, Notify: r.note,
	})
	r.server, err = serve(ctx, r.source.GetCertificate)
	if err != nil {
		return nil, err
	}
	ctx, r.cancel = context.WithCancel(context.WithoutCancel(ctx))
	for _, run := range []func(context.Context) error{r.watcher.Run, r.source.Run, r.publisher.Run} {
		r.running.Go(func() {
			err := run(ctx)
			if err != nil {
				r.note(certs.Event{Err: fmt.Errorf("it has ended: %w", err)})
			}
		})
	}
	return r, nil
}

// stop ends the replica as a program ends that is told to.
func (r *replica) stop() {
	r.cancel()
	r.running.Wait()
	_ = r.close()
}

// ready reports whether the replica may be called.
func (r *replica) ready() error {
	cert := r.source.Certificate()
	if cert == nil {
		return r.source.Healthy()
	}
	return errors.Join(r.source.Healthy(), r.watcher.Ready(cert))
}

func (r *replica) note(e certs.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.events = append(r.events, e)
}

// story is what the replica reported.
func (r *replica) story() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	text := r.config.Name + ":"
	for i := range r.events {
		e := &r.events[i]
		text += fmt.Sprintf("\n  %s %s %s", e.Subject, e.Reason, e.Message)
		if e.Err != nil {
			text += ": " + e.Err.Error()
		}
	}
	return text
}

// replicaConfig is the usual one of a hook's replica.
func (h *hook) replicaConfig(name string) replicaConfig {
	return replicaConfig{
		Name: name, Kubeconfig: h.Kubeconfig(), Hook: h.name, Host: h.host(),
		Hold: lag, EmergencyHold: lag / 2, EmergencyWait: time.Minute, Interval: time.Second,
	}
}

func (h *hook) start(t *testing.T, config replicaConfig) *replica {
	t.Helper()
	r, err := startReplica(t.Context(), config)
	must(t, err)
	t.Cleanup(func() {
		r.stop()
		if t.Failed() {
			t.Log(r.story())
		}
	})
	return r
}

// replicas are all of a hook.
type replicas []*replica

// replicate starts replicas that differ as edits say, and makes them the Service's endpoints once they are ready.
func (h *hook) replicate(t *testing.T, n int, edits ...func(i int, c *replicaConfig)) replicas {
	t.Helper()
	var (
		rs    replicas
		ports []int
	)
	for i := range n {
		config := h.replicaConfig(fmt.Sprintf("replica-%d", i))
		for _, edit := range edits {
			edit(i, &config)
		}
		r := h.start(t, config)
		rs, ports = append(rs, r), append(ports, r.port())
	}
	support.Eventually(t, "all replicas are ready", rs.ready)
	h.endpoints(t, ports...)
	return rs
}

func (rs replicas) ready() error {
	var errs []error
	for _, r := range rs {
		err := r.ready()
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", r.config.Name, err))
		}
	}
	return errors.Join(errs...)
}

// work is that of all.
func (rs replicas) work() work {
	var sum work
	for _, r := range rs {
		sum = sum.and(r.work())
	}
	return sum
}
