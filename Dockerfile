# One image for the scheduler and the workers, built from uv.lock alone, so that the
# cluster runs the same versions as the client. `make up` builds it, and with a profile
# what stands beside them: an object store, or Dagster, which has a lockfile of its own.

# The base image carries the client's own Python, down to the patch version: Dask
# compares it when a client connects. The Makefile asks the client and hands it in.
ARG PYTHON_IMAGE

FROM ${PYTHON_IMAGE} AS uv
ARG UV_VERSION
RUN python -m pip install --no-cache-dir --disable-pip-version-check --root-user-action=ignore \
        "uv==${UV_VERSION}"
ENV UV_PROJECT_ENVIRONMENT=/opt/lab UV_PYTHON_DOWNLOADS=never \
    UV_LINK_MODE=copy UV_COMPILE_BYTECODE=1
WORKDIR /build

FROM uv AS builder
# The dependencies first: this layer is built again only when the lockfile changes.
COPY pyproject.toml uv.lock ./
RUN uv sync --frozen --no-dev --extra exporter --no-install-project --no-cache \
    # Test suites that packages ship: a quarter of the size, and never imported.
    && find /opt/lab -type d -name tests -prune -exec rm -rf {} +
# botocore describes every service of AWS, one folder each; S3 is what is called here,
# and STS may be where its keys come from.
RUN find /opt/lab -path '*/botocore/data/*' -prune -type d ! -name s3 ! -name sts \
        -exec rm -rf {} +
COPY README.md ./
COPY src ./src
RUN uv sync --frozen --no-dev --extra exporter --no-editable --no-cache

# The stand-in for S3 of the profile `storage`; built only where that is asked for.
FROM uv AS object-store-builder
COPY pyproject.toml uv.lock ./
# moto knows all of AWS: compile what a server of S3 imports, not its five thousand files.
RUN UV_COMPILE_BYTECODE=0 uv sync --frozen --only-group object-store --no-cache \
    && /opt/lab/bin/python -c "import moto.server, moto.moto_server.werkzeug_app, moto.s3.urls"

# The base image has Python's own library as source only. What the last step of this and
# the next images imports as root is compiled for good: as another user, every process
# would do that again.
FROM ${PYTHON_IMAGE} AS object-store
COPY --from=object-store-builder /opt/lab /opt/lab
COPY src/dask_cluster_lab/health.py /opt/lab/
ENV PATH=/opt/lab/bin:$PATH PYTHONUNBUFFERED=1
RUN useradd --create-home --uid 1000 lab \
    && python -c "import moto.server, moto.moto_server.werkzeug_app, moto.s3.urls"
USER lab
WORKDIR /home/lab

# Dagster of the profile `orchestrator`, with the versions of Dask that the cluster has.
FROM uv AS dagster-builder
COPY monitoring/dagster/pyproject.toml monitoring/dagster/uv.lock ./
RUN uv sync --frozen --group dask --no-cache

FROM ${PYTHON_IMAGE} AS dagster
COPY --from=dagster-builder /opt/lab /opt/lab
COPY src/dask_cluster_lab/health.py /opt/lab/
COPY monitoring/dagster /code
ENV PATH=/opt/lab/bin:$PATH PYTHONUNBUFFERED=1 DAGSTER_HOME=/dagster
RUN useradd --create-home --uid 1000 lab \
    && mkdir /dagster && cp /code/dagster.yaml /dagster/ && chown -R lab:lab /dagster \
    && python -c "import dagster_webserver.app, dagster._daemon.cli, dagster._grpc.server"
USER lab
WORKDIR /code

FROM ${PYTHON_IMAGE}
COPY --from=builder /opt/lab /opt/lab
COPY src/dask_cluster_lab/health.py /opt/lab/
ENV PATH=/opt/lab/bin:$PATH PYTHONUNBUFFERED=1
# Nobody needs root to add two arrays. /data is where the named volume goes; a new
# volume takes over the owner of the folder that it covers.
RUN useradd --create-home --uid 1000 lab \
    && mkdir /data /scratch && chown lab:lab /data /scratch
RUN python -c "import distributed.cli.dask_scheduler, distributed.cli.dask_worker, \
    distributed.http.scheduler.info, s3fs, xarray, zarr, dagster_exporter"
USER lab
WORKDIR /home/lab
