package token

import (
	"cmp"
	"fmt"

	"github.com/spf13/cobra"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cli"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/login/tokens"
	"github.com/gatehouse-dev/gatehouse/internal/build"
	"github.com/gatehouse-dev/gatehouse/internal/shell"
)

// tokenPlace says where access tokens or Grants are kept: in a directory of documents, or in a
// cluster as custom resources.
type tokenPlace struct {
	cli.ClusterFlags
	config string
	// kept are "Grants", and "tokens" if it is "".
	kept string
}

func (f *tokenPlace) add(cmd *cobra.Command, config string) {
	cli.AddConfigFlag(cmd, &f.config, config)
	f.Add(cmd)
}

// one tells why the flags do not name one place.
func (f *tokenPlace) one() error {
	kept := cmp.Or(f.kept, "tokens")
	switch {
	case f.config == "" && !f.Given():
		return fmt.Errorf("say where the %s are: --config DIR, or a cluster with --context NAME, --kubeconfig FILE or --in-cluster", kept)
	case f.config != "" && f.Given():
		return fmt.Errorf("--config excludes --kubeconfig, --context and --in-cluster: %s are in a directory or in a cluster", kept)
	case f.config != "":
		return cli.CheckDir("--config", f.config)
	default:
		return f.Check()
	}
}

// open returns the Store that the flags name.
func (f *tokenPlace) open(s cli.Streams) (tokens.Store, error) {
	if !f.Given() {
		return tokens.Directory{Dir: f.config}, nil
	}
	return f.cluster(s)
}

// cluster returns the cluster that the flags name. What the API server remarks goes to
// standard error.
func (f *tokenPlace) cluster(s cli.Streams) (*tokens.Cluster, error) {
	access, err := f.Connect("--config DIR for a directory of documents")
	if err != nil {
		return nil, err
	}
	access.QPS, access.UserAgent = -1, "gatehouse-token/"+build.Version()
	access.WarningHandler = rest.NewWarningWriter(s.Err, rest.WarningWriterOptions{Deduplicate: true})
	client, err := dynamic.NewForConfig(access)
	if err != nil {
		return nil, fmt.Errorf("no client for the API server: %w", err)
	}
	return tokens.NewCluster(client), nil
}

// placeText returns the place of a document in a sentence.
func (f *tokenPlace) placeText(place string) string {
	if f.Given() {
		return f.where()
	}
	return place
}

// where names the place in a sentence.
func (f *tokenPlace) where() string {
	if f.Given() {
		return "the cluster"
	}
	return f.config
}

// flags name the place for another command.
func (f *tokenPlace) flags() string {
	if f.Given() {
		return f.Words()
	}
	return " --config " + shell.Quote(f.config)
}
