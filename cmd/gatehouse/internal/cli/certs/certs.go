// Package certs has the commands about serving certificates: certs status and rotate.
package certs

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/client-go/dynamic"

	"github.com/gatehouse-dev/gatehouse/certs"
	"github.com/gatehouse-dev/gatehouse/certs/cabundle"
	"github.com/gatehouse-dev/gatehouse/certs/rotation"
	certstore "github.com/gatehouse-dev/gatehouse/certs/store"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cli"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/install"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/install/webhookcall"
	"github.com/gatehouse-dev/gatehouse/internal/shell"
)

// NewCommand returns the command "gatehouse certs".
func NewCommand(s cli.Streams) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "certs",
		Short: "Show and rotate the CA of the serving certificates",
		Long: `The servers that share a CA store it in a Secret; a single server can store it in a
directory. They rotate it step by step, so that no call fails. 'certs status' shows
the state of a rotation, and 'certs rotate' requests a new CA: the running servers do
the rest.`,
		Args: cobra.NoArgs,
	}
	cmd.AddCommand(newStatusCommand(s), newRotateCommand(s))
	return cmd
}

// commonFlags locate a state and the registrations that trust it.
type commonFlags struct {
	cli.ClusterFlags
	secret, dir   string
	namespace     string
	registrations []string
	hold          time.Duration
	// dryRun is that of rotate.
	dryRun cli.DryRun

	now func() time.Time
}

func (f *commonFlags) add(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&f.secret, "secret", install.DefaultCASecret, "Secret with the CA, NAMESPACE/NAME, as in --self-signed-secret of serve")
	flags.StringVarP(&f.namespace, "namespace", "n", "", "namespace of the Secret (default that of --secret)")
	flags.StringVar(&f.dir, "dir", "", "directory with the CA in place of a Secret, as in --self-signed-dir of serve")
	flags.StringArrayVar(&f.registrations, "registration", nil, "webhook configurations that trust the CA: NAME, mutating/NAME or validating/NAME; repeatable, empty for none (default "+install.DefaultRegistration+"; with --dir none)")
	flags.DurationVar(&f.hold, "rotation-hold", rotation.DefaultHold, "--rotation-hold of the servers, to show when a hold ends")
	f.Add(cmd)
	_ = cmd.MarkFlagDirname("dir") // the flags exist
}

// storage holds a state, and the registrations that trust it.
type storage struct {
	store certstore.Store
	// named reports whether a flag names the Secret.
	named bool
	// replicas is nil for a directory, which belongs to one server.
	replicas certstore.Replicas
	// forget is the command that removes the Lease of a replica, without its name.
	forget string
	// trusted reads what registrations trust. It is nil without registrations.
	trusted func(ctx context.Context) []trustEntry
	// handshake makes a connection to each webhook of the entries. It is nil without registrations.
	handshake func(ctx context.Context, entries []trustEntry)
}

// open returns the storage that the flags name. It sends no request, and reports
// everything that is wrong with the flags.
func (f *commonFlags) open(cmd *cobra.Command) (*storage, error) {
	var problems cli.Problems
	problems.Add(f.dir != "" && cmd.Flags().Changed("secret"), "--dir and --secret exclude each other")
	problems.Add(cmd.Flags().Changed("dir") && f.dir == "", `--dir "": must not be empty`)
	problems = append(problems, f.Check())
	names := f.names()
	problems.Add(f.dir != "" && len(names) == 0 && f.Given(),
		"--kubeconfig, --context and --in-cluster say where registrations are, and with --dir there are none (hint: --registration %s, or leave them out)", install.DefaultRegistration)
	problems.Add(f.hold < 0, "--rotation-hold %s: must not be negative", cli.FormatDuration(f.hold))
	problems = append(problems, f.applyNamespace(cmd.Flags().Changed("secret")))
	namespace, name, err := install.ParseNamespacedName(f.secret)
	problems.Add(err != nil, "--secret: %w (hint: %s)", err, install.DefaultCASecret)
	problems.Add(err == nil && name == "", `--secret "": must not be empty`)
	var registrations []cabundle.Registration
	for _, one := range names {
		r, err := cabundle.ParseRegistration(one)
		problems.Add(err != nil, "--registration: %w", err)
		registrations = append(registrations, r)
	}
	if f.dir != "" {
		problems = append(problems, cli.CheckDir("--dir", f.dir))
	}
	if err := problems.Err(); err != nil {
		return nil, err
	}
	var place storage
	var client certs.Client
	var objects dynamic.Interface
	if f.dir == "" || len(registrations) > 0 {
		if client, objects, err = f.clients(); err != nil {
			return nil, err
		}
	}
	if len(registrations) > 0 {
		place.trusted = func(ctx context.Context) []trustEntry { return readTrust(ctx, client, objects, registrations) }
		place.handshake = func(ctx context.Context, entries []trustEntry) { makeHandshakes(ctx, client, registrations, entries) }
	}
	if f.dir != "" {
		place.store = certstore.NewDirStore(f.dir)
		return &place, nil
	}
	place.named = f.namespace != "" || cmd.Flags().Changed("secret")
	place.store = certstore.NewSecretStore(certstore.SecretStoreConfig{Client: client, Namespace: namespace, Name: name, DryRun: f.dryRun.Server()})
	place.replicas = certstore.NewLeases(certstore.LeasesConfig{Client: client, Namespace: namespace, Group: name, Now: f.now})
	place.forget = "kubectl -n " + shell.Quote(namespace) + " delete lease "
	if f.Named() {
		place.forget = "kubectl" + f.Words() + " -n " + shell.Quote(namespace) + " delete lease "
	}
	return &place, nil
}

// applyNamespace completes --secret by --namespace.
func (f *commonFlags) applyNamespace(secretGiven bool) error {
	namespace, name, named := strings.Cut(f.secret, "/")
	switch {
	case f.namespace == "":
		return nil
	case f.dir != "":
		return errors.New("--dir and --namespace exclude each other")
	case !named:
		name = f.secret
	case secretGiven && namespace != f.namespace:
		return fmt.Errorf("--namespace %q: --secret %q is in another namespace", f.namespace, f.secret)
	}
	f.secret = f.namespace + "/" + name
	return nil
}

// names returns the registrations to read. An empty one is none, as for serve.
func (f *commonFlags) names() []string {
	switch {
	case len(f.registrations) == 1 && f.registrations[0] == "":
		return nil
	case len(f.registrations) == 0 && f.dir == "":
		return []string{install.DefaultRegistration}
	default:
		return f.registrations
	}
}

// clients returns the clients of the API server that the flags name.
func (f *commonFlags) clients() (certs.Client, dynamic.Interface, error) {
	config, err := f.Connect("--dir DIR for servers without a cluster")
	if err != nil {
		return nil, nil, err
	}
	client, err := certs.NewClient(config)
	if err != nil {
		return nil, nil, fmt.Errorf("no client for the API server: %w", err)
	}
	objects, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, nil, fmt.Errorf("no client for the API server: %w", err)
	}
	return client, objects, nil
}

// read reads everything concurrently: each part may wait for an API server that does not
// answer.
func (f *commonFlags) read(ctx context.Context, p *storage) *snapshot {
	s := &snapshot{place: p.store.String(), hold: f.hold, registered: p.trusted != nil, single: p.replicas == nil, forget: p.forget, named: p.named}
	var reading sync.WaitGroup
	reading.Go(func() {
		record, err := p.store.Load(ctx)
		if err == nil {
			s.state, err = rotation.Decode(record.Data)
		}
		s.stateErr = err
	})
	if p.replicas != nil {
		reading.Go(func() { s.replicas, s.replicasErr = p.replicas.List(ctx) })
	}
	if p.trusted != nil {
		reading.Go(func() { s.entries = p.trusted(ctx) })
	}
	reading.Wait()
	if p.handshake != nil && s.state == nil && len(s.replicas) == 0 {
		p.handshake(ctx, s.entries)
	}
	s.now = f.now().Round(0)
	return s
}

// readTrust reads what registrations trust.
func readTrust(ctx context.Context, client certs.Client, objects dynamic.Interface, registrations []cabundle.Registration) []trustEntry {
	read, _ := cabundle.Read(ctx, client, registrations) // what cannot be read says so
	var entries []trustEntry
	for i := range read {
		of := trustOf(&read[i])
		of[0].renewal = renewalRemarks(ctx, objects, &read[i])
		entries = append(entries, of...)
	}
	return entries
}

// trustOf returns what the webhooks of a configuration trust.
func trustOf(c *cabundle.Status) []trustEntry {
	all := trustEntry{object: c.Kind + "/" + c.Name}
	switch {
	case c.Problem != "":
		all.problem, all.unknown = strings.TrimPrefix(c.Problem, c.Kind+" "+c.Name+": "), true
	case !c.Found:
		all.problem = "does not exist: the API server does not call for it"
	case len(c.Entries) == 0:
		all.problem = "has no webhooks: the API server does not call for it"
	}
	if all.problem != "" {
		return []trustEntry{all}
	}
	var entries []trustEntry
	for i := range c.Entries {
		from := &c.Entries[i]
		e := trustEntry{object: all.object, webhook: from.Name, bundle: from.Bundle, remark: from.Remark, injector: c.Injector}
		if len(from.Managers) > 0 && from.Managers[0].Name != cabundle.FieldManager {
			e.author = from.Managers[0].Name
		}
		entries = append(entries, e)
	}
	return entries
}

// handshakeTimeout bounds the connections to all webhooks.
const handshakeTimeout = 5 * time.Second

// makeHandshakes makes a connection to each webhook, as the API server does, and records whether its bundle verifies the certificate.
func makeHandshakes(ctx context.Context, client certs.Client, registrations []cabundle.Registration, entries []trustEntry) {
	ctx, cancel := context.WithTimeout(ctx, handshakeTimeout)
	defer cancel()
	var calls []webhookcall.Call
	read := map[string]bool{}
	for _, r := range registrations {
		if !read[r.Name] {
			found, _ := webhookcall.Read(ctx, client, r.Name) // what cannot be read, readTrust says
			calls, read[r.Name] = append(calls, found...), true
		}
	}
	errs := webhookcall.Handshakes(ctx, client, calls)
	for i := range entries {
		e := &entries[i]
		if at := slices.IndexFunc(calls, func(c webhookcall.Call) bool { return c.Configuration == e.object && c.Webhook == e.webhook }); at >= 0 {
			e.probed, e.probeErr = true, errs[at]
		}
	}
}
