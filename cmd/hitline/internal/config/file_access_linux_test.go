package config

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"golang.org/x/sys/unix"
)

func TestIsSecretMount(t *testing.T) {
	assert.True(t, isSecretMount(unix.TMPFS_MAGIC, unix.ST_RDONLY|unix.ST_RELATIME))
	assert.False(t, isSecretMount(unix.TMPFS_MAGIC, 0), "such as /run")
	assert.False(t, isSecretMount(unix.EXT4_SUPER_MAGIC, unix.ST_RDONLY), "systemd's ProtectSystem mounts /etc so")
	assert.False(t, isReadOnlyMemory(t.TempDir()))
}
