package install

import (
	"testing"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cli/clitest"
)

func TestMain(m *testing.M) {
	clitest.Main(m, NewManifestsCommand, NewProbeCommand, NewUninstallCommand)
}
