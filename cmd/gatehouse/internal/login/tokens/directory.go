package tokens

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
	"github.com/gatehouse-dev/gatehouse/webhooks/authn"
	"github.com/gatehouse-dev/gatehouse/webhooks/config"
)

// Directory is a Store of documents in the files of a directory, as Gatehouse
// reads it.
type Directory struct {
	// Dir is the directory.
	Dir string
}

var _ Store = Directory{} // a Directory is a Store

// TokenFile returns where Create writes the token of an id.
func (d Directory) TokenFile(id string) string {
	return filepath.Join(d.Dir, "token-"+id+".yaml")
}

// Create writes the token to token-<id>.yaml, never over a file.
func (d Directory) Create(ctx context.Context, token *v1alpha1.AccessToken) (string, error) {
	return d.create(ctx, d.TokenFile(token.Name), token)
}

// Revoke writes the revocation to <name>.yaml, never over a file.
func (d Directory) Revoke(ctx context.Context, revocation *v1alpha1.TokenRevocation, dryRun bool) (string, error) {
	if dryRun {
		return d.Dir, ctx.Err()
	}
	return d.create(ctx, filepath.Join(d.Dir, revocation.Name+".yaml"), revocation)
}

func (d Directory) create(ctx context.Context, file string, document any) (string, error) {
	if err := ctx.Err(); err != nil {
		return "", err
	}
	data, err := yaml.Marshal(document)
	if err != nil {
		return "", err
	}
	return file, WriteNew(file, data, documentMode)
}

// documentMode is that of documents: they hold no secret and are for everybody
// who may read the directory.
const documentMode fs.FileMode = 0o644

// WriteNew writes a file that does not exist yet. The error of one that does is
// ErrExists. A file that could not be written whole is removed again.
func WriteNew(file string, data []byte, mode fs.FileMode) error {
	f, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode) // #nosec G304 -- the operator names the directory
	if errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("%s %w", file, ErrExists)
	}
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err = errors.Join(err, f.Close()); err != nil {
		return errors.Join(err, os.Remove(file))
	}
	return nil
}

// Delete removes the file of a token that has nothing else in it. A link is not removed: a
// kubelet or git-sync, which has made it, would bring the token back.
func (d Directory) Delete(ctx context.Context, token *authn.Token, dryRun bool) (string, error) {
	return d.remove(ctx, token.Source, "token", dryRun)
}

// remove removes the file of a source that has one document, of which a hint speaks as this.
func (d Directory) remove(ctx context.Context, source, what string, dryRun bool) (string, error) {
	name, _, several := strings.Cut(source, "#")
	file := filepath.Join(d.Dir, filepath.FromSlash(name))
	info, err := os.Lstat(file)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return file, fmt.Errorf("%s %w", file, ErrNotFound)
	case err != nil:
		return file, err
	case several:
		return file, fmt.Errorf("%s has other documents too (hint: remove the %s there)", file, what)
	case !info.Mode().IsRegular():
		return file, fmt.Errorf("%s is a link (hint: remove the %s where the files come from)", file, what)
	case dryRun || ctx.Err() != nil:
		return file, ctx.Err()
	}
	return file, os.Remove(file)
}

// List reads the directory as a server does: tokens in lists, and in files with
// other documents, are found too.
func (d Directory) List(ctx context.Context) (Listing, error) {
	if err := ctx.Err(); err != nil {
		return Listing{}, err
	}
	loaded, found := config.Inspect(d.Dir)
	return Listing{Spec: loaded.Authn, Found: found}, nil
}
