package token

import (
	"fmt"
	"path/filepath"
	"strings"

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
	// grants reports whether it is about Grants.
	grants bool
}

// words are what the documents and the commands about them are called.
type words struct {
	// plural and document are for sentences, and nothing says that none was created.
	plural, document, nothing string
	command, nameFlag         string
}

func (f *tokenPlace) words() words {
	if f.grants {
		return words{"Grants", "Grant", "nothing was granted", "grant", "--name"}
	}
	return words{"tokens", "access token", "no token was issued", "token", "--id"}
}

// documents keeps both kinds.
type documents interface {
	tokens.Store
	tokens.GrantStore
}

func (f *tokenPlace) add(cmd *cobra.Command, config string) {
	cli.AddConfigFlag(cmd, &f.config, config)
	f.Add(cmd)
}

// one tells why the flags do not name one place.
func (f *tokenPlace) one() error {
	kept := f.words().plural
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

// open returns where the documents are, if the flags name one place.
func (f *tokenPlace) open(s cli.Streams) (documents, error) {
	if err := f.one(); err != nil {
		return nil, err
	}
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

// file returns the file of a document's source. It is empty for an object of a cluster.
func (f *tokenPlace) file(source string) string {
	if f.Given() {
		return ""
	}
	name, _, _ := strings.Cut(source, "#")
	return filepath.Join(f.config, filepath.FromSlash(name))
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
