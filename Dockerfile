# The MCP server over stdio with the model inside:
#   docker build -t subconscious-mcp . && docker run -i --rm -v subconscious:/data subconscious-mcp
FROM python:3.13-slim AS build
WORKDIR /src
COPY pyproject.toml README.md LICENSE NOTICE ./
COPY models models
COPY subconscious_mcp subconscious_mcp
RUN python -m venv /opt/subconscious-mcp \
 && /opt/subconscious-mcp/bin/pip install --no-cache-dir . \
 && SUBCONSCIOUS_HOME=/opt/model-home /opt/subconscious-mcp/bin/subconscious-mcp model install

FROM python:3.13-slim
COPY --from=build /opt/subconscious-mcp /opt/subconscious-mcp
COPY --from=build /opt/model-home/models /opt/models
# The package and the model are read-only for this user; only /data is written.
RUN useradd --no-create-home --uid 10001 memory \
 && chmod -R a+rX /opt/models \
 && install -d -o memory -m 0700 /data
ENV SUBCONSCIOUS_HOME=/data \
    SUBCONSCIOUS_MODELS_DIR=/opt/models \
    SUBCONSCIOUS_MODEL_DOWNLOAD=never \
    SUBCONSCIOUS_NAMESPACE=default
USER 10001
VOLUME /data
# One client, one process: an engine would have nobody to share with.
ENTRYPOINT ["/opt/subconscious-mcp/bin/subconscious-mcp", "serve"]
