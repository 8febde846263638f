// Package certs has the commands about serving certificates: certs status and rotate.
package certs

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/client-go/dynamic"

	"github.com/gatehouse-dev/gatehouse/certs"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cli"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cluster/install"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cluster/registration"
)

// NewCommand returns the command "gatehouse certs".
func NewCommand(s cli.Streams) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "certs",
		Short: "Show and rotate the CA of the serving certificates",
		Long: `Servers with a CA of their own (serve --self-signed) keep it in a Secret, or a
single server in a directory. 'certs status' shows the state of the CA and which
webhook configurations trust it. 'certs rotate' requests a new CA, which takes the
place of the old one without a failed call.`,
		Args: cobra.NoArgs,
	}
	cmd.AddCommand(newStatusCommand(s), newRotateCommand(s))
	return cmd
}

// commonFlags locate a state and the registrations that trust it.
type commonFlags struct {
	cli.ClusterFlags
	secret, dir   string
	registrations []string
	// dryRun is that of rotate.
	dryRun bool

	now func() time.Time
}

func (f *commonFlags) add(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&f.secret, "secret", install.DefaultCASecret, "Secret with the CA, NAMESPACE/NAME, as in --self-signed-secret of serve")
	flags.StringVar(&f.dir, "dir", "", "directory with the CA, in place of a Secret, as in --self-signed-dir of serve")
	flags.StringArrayVar(&f.registrations, "registration", nil, "name of the webhook configurations that trust the CA, of either kind; repeatable, empty for none (default "+install.DefaultRegistration+"; with --dir none)")
	f.Add(cmd)
}

// storage holds a state, and the registrations that trust it.
type storage struct {
	store certs.Store
	// named reports whether a flag names the place.
	named bool
	names []string
	// client and objects are nil if nothing is read from an API server.
	client  certs.Client
	objects dynamic.Interface
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
	namespace, name, err := install.ParseNamespacedName(f.secret)
	problems.Add(err != nil, "--secret: %w (hint: %s)", err, install.DefaultCASecret)
	problems.Add(err == nil && name == "", `--secret "": must not be empty`)
	place := &storage{named: f.dir != "" || cmd.Flags().Changed("secret"), names: names}
	for _, one := range names {
		err := registration.CheckName(one)
		problems.Add(err != nil, "--registration: %w", err)
	}
	if f.dir != "" {
		problems = append(problems, cli.CheckDir("--dir", f.dir))
	}
	if err := problems.Err(); err != nil {
		return nil, err
	}
	if f.dir == "" || len(names) > 0 {
		if err := f.connect(place); err != nil {
			return nil, err
		}
	}
	if f.dir != "" {
		place.store = certs.NewDirStore(f.dir)
	} else {
		place.store = &certs.SecretStore{Client: place.client, Namespace: namespace, Name: name}
	}
	return place, nil
}

// connect sets the clients of the API server that the flags name.
func (f *commonFlags) connect(place *storage) error {
	config, err := f.Connect("--dir DIR for servers without a cluster")
	if err != nil {
		return err
	}
	if place.client, err = certs.NewClient(config); err == nil {
		place.objects, err = dynamic.NewForConfig(config)
	}
	if err != nil {
		return fmt.Errorf("no client for the API server: %w", err)
	}
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

// snapshot is everything that was read at one time, and why something could not be.
type snapshot struct {
	now time.Time
	// place is where the state is kept, as messages name it, and named reports whether a flag names it.
	place string
	named bool
	// state is nil if there is none, or none that can be read; stateErr says why, and damaged whether that is what is stored.
	// Request is the last request.
	state    *certs.State
	stateErr error
	damaged  bool
	request  string
	// configurations are what was read of the registrations, and issued what cert-manager has to do with them.
	configurations []registration.Status
	issued         []issuedView
}

// read reads everything concurrently: each part may wait for an API server that does not
// answer.
func (f *commonFlags) read(ctx context.Context, p *storage) *snapshot {
	s := &snapshot{place: p.store.String(), named: p.named}
	var reading sync.WaitGroup
	reading.Go(func() {
		record, err := p.store.Load(ctx)
		if err == nil {
			s.request = record.Request
			s.state, err = certs.Decode(record.Data)
			s.damaged = err != nil
		}
		s.stateErr = err
	})
	reading.Go(func() {
		if len(p.names) > 0 {
			s.configurations = registration.Read(ctx, p.client, p.names)
			s.issued = readIssued(ctx, p.objects, s.configurations)
		}
	})
	reading.Wait()
	s.now = f.now().Round(0)
	return s
}
