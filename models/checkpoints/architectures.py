# Written by tools/make_architectures.py.
"""The classes that transformers 5.24.0 has for each model type, by the names that `architectures` may have."""

TRANSFORMERS = "5.24.0"

CLASSES = {
    "albert": (
        "AlbertForMaskedLM AlbertForMultipleChoice AlbertForPreTraining AlbertForQuestionAnswering "
        "AlbertForSequenceClassification AlbertForTokenClassification AlbertModel"
    ),
    "bart": (
        "BartDecoder BartEncoder BartForCausalLM BartForConditionalGeneration BartForQuestionAnswering "
        "BartForSequenceClassification BartModel"
    ),
    "bert": (
        "BertForMaskedLM BertForMultipleChoice BertForNextSentencePrediction BertForPreTraining "
        "BertForQuestionAnswering BertForSequenceClassification BertForTokenClassification BertLMHeadModel "
        "BertModel"
    ),
    "camembert": (
        "CamembertForCausalLM CamembertForMaskedLM CamembertForMultipleChoice CamembertForQuestionAnswering "
        "CamembertForSequenceClassification CamembertForTokenClassification CamembertModel"
    ),
    "clip": "CLIPForImageClassification CLIPModel",
    "clip_text_model": "CLIPTextModel CLIPTextModelWithProjection",
    "clip_vision_model": "CLIPVisionModel CLIPVisionModelWithProjection",
    "cohere": "CohereForCausalLM CohereModel",
    "cohere2": "Cohere2ForCausalLM Cohere2Model",
    "convnext": "ConvNextBackbone ConvNextEncoder ConvNextForImageClassification ConvNextModel",
    "convnextv2": "ConvNextV2Backbone ConvNextV2Encoder ConvNextV2ForImageClassification ConvNextV2Model",
    "deberta": (
        "DebertaForMaskedLM DebertaForQuestionAnswering DebertaForSequenceClassification "
        "DebertaForTokenClassification DebertaModel"
    ),
    "deberta-v2": (
        "DebertaV2ForMaskedLM DebertaV2ForMultipleChoice DebertaV2ForQuestionAnswering "
        "DebertaV2ForSequenceClassification DebertaV2ForTokenClassification DebertaV2Model"
    ),
    "deepseek_v2": "DeepseekV2ForCausalLM DeepseekV2ForSequenceClassification DeepseekV2Model",
    "deepseek_v3": (
        "DeepseekV3ForCausalLM DeepseekV3ForSequenceClassification DeepseekV3ForTokenClassification DeepseekV3Model"
    ),
    "deit": "DeiTForImageClassification DeiTForImageClassificationWithTeacher DeiTForMaskedImageModeling DeiTModel",
    "depth_anything": "DepthAnythingForDepthEstimation",
    "detr": "DetrDecoder DetrEncoder DetrForObjectDetection DetrForSegmentation DetrModel",
    "dinov2": "Dinov2Backbone Dinov2Encoder Dinov2ForImageClassification Dinov2Model",
    "dinov2_with_registers": (
        "Dinov2WithRegistersBackbone Dinov2WithRegistersEncoder Dinov2WithRegistersForImageClassification "
        "Dinov2WithRegistersModel"
    ),
    "dinov3_vit": "DINOv3ViTBackbone DINOv3ViTEncoder DINOv3ViTModel",
    "distilbert": (
        "DistilBertForMaskedLM DistilBertForMultipleChoice DistilBertForQuestionAnswering "
        "DistilBertForSequenceClassification DistilBertForTokenClassification DistilBertModel"
    ),
    "electra": (
        "ElectraForCausalLM ElectraForMaskedLM ElectraForMultipleChoice ElectraForPreTraining "
        "ElectraForQuestionAnswering ElectraForSequenceClassification ElectraForTokenClassification ElectraModel"
    ),
    "ernie": (
        "ErnieForCausalLM ErnieForMaskedLM ErnieForMultipleChoice ErnieForNextSentencePrediction "
        "ErnieForPreTraining ErnieForQuestionAnswering ErnieForSequenceClassification ErnieForTokenClassification "
        "ErnieModel"
    ),
    "esm": "EsmForMaskedLM EsmForSequenceClassification EsmForTokenClassification EsmModel",
    "eurobert": "EuroBertForMaskedLM EuroBertForSequenceClassification EuroBertForTokenClassification EuroBertModel",
    "falcon": (
        "FalconForCausalLM FalconForQuestionAnswering FalconForSequenceClassification FalconForTokenClassification "
        "FalconModel"
    ),
    "gemma": "GemmaForCausalLM GemmaForSequenceClassification GemmaForTokenClassification GemmaModel",
    "gemma2": "Gemma2ForCausalLM Gemma2ForSequenceClassification Gemma2ForTokenClassification Gemma2Model",
    "gemma3": "Gemma3ForConditionalGeneration Gemma3ForSequenceClassification Gemma3Model",
    "gemma3_text": "Gemma3ForCausalLM Gemma3TextForSequenceClassification Gemma3TextModel",
    "glm": "GlmForCausalLM GlmForSequenceClassification GlmForTokenClassification GlmModel",
    "glm4": "Glm4ForCausalLM Glm4ForSequenceClassification Glm4ForTokenClassification Glm4Model",
    "gpt2": (
        "GPT2DoubleHeadsModel GPT2ForQuestionAnswering GPT2ForSequenceClassification GPT2ForTokenClassification "
        "GPT2LMHeadModel GPT2Model"
    ),
    "gpt_neox": (
        "GPTNeoXForCausalLM GPTNeoXForQuestionAnswering GPTNeoXForSequenceClassification "
        "GPTNeoXForTokenClassification GPTNeoXModel"
    ),
    "gpt_oss": "GptOssForCausalLM GptOssForSequenceClassification GptOssForTokenClassification GptOssModel",
    "granite": "GraniteForCausalLM GraniteModel",
    "granitemoe": "GraniteMoeForCausalLM GraniteMoeModel",
    "helium": "HeliumForCausalLM HeliumForSequenceClassification HeliumForTokenClassification HeliumModel",
    "hubert": "HubertForCTC HubertForSequenceClassification HubertModel",
    "idefics3": "Idefics3ForConditionalGeneration Idefics3Model",
    "jina_embeddings_v3": (
        "JinaEmbeddingsV3ForMaskedLM JinaEmbeddingsV3ForQuestionAnswering "
        "JinaEmbeddingsV3ForSequenceClassification JinaEmbeddingsV3ForTokenClassification JinaEmbeddingsV3Model"
    ),
    "layoutlm": (
        "LayoutLMForMaskedLM LayoutLMForQuestionAnswering LayoutLMForSequenceClassification "
        "LayoutLMForTokenClassification LayoutLMModel"
    ),
    "lfm2": "Lfm2ForCausalLM Lfm2Model",
    "llama": (
        "LlamaForCausalLM LlamaForQuestionAnswering LlamaForSequenceClassification LlamaForTokenClassification "
        "LlamaModel"
    ),
    "m2m_100": "M2M100Decoder M2M100Encoder M2M100ForConditionalGeneration M2M100Model",
    "mamba2": "Mamba2ForCausalLM Mamba2Model",
    "marian": "MarianDecoder MarianEncoder MarianForCausalLM MarianMTModel MarianModel",
    "mbart": (
        "MBartDecoder MBartEncoder MBartForCausalLM MBartForConditionalGeneration MBartForQuestionAnswering "
        "MBartForSequenceClassification MBartModel"
    ),
    "ministral": (
        "MinistralForCausalLM MinistralForQuestionAnswering MinistralForSequenceClassification "
        "MinistralForTokenClassification MinistralModel"
    ),
    "ministral3": (
        "Ministral3ForCausalLM Ministral3ForQuestionAnswering Ministral3ForSequenceClassification "
        "Ministral3ForTokenClassification Ministral3Model"
    ),
    "mistral": (
        "MistralForCausalLM MistralForQuestionAnswering MistralForSequenceClassification "
        "MistralForTokenClassification MistralModel"
    ),
    "mixtral": (
        "MixtralForCausalLM MixtralForQuestionAnswering MixtralForSequenceClassification "
        "MixtralForTokenClassification MixtralModel"
    ),
    "modernbert": (
        "ModernBertForMaskedLM ModernBertForMultipleChoice ModernBertForQuestionAnswering "
        "ModernBertForSequenceClassification ModernBertForTokenClassification ModernBertModel"
    ),
    "mpnet": (
        "MPNetForMaskedLM MPNetForMultipleChoice MPNetForQuestionAnswering MPNetForSequenceClassification "
        "MPNetForTokenClassification MPNetModel"
    ),
    "mt5": (
        "MT5EncoderModel MT5ForConditionalGeneration MT5ForQuestionAnswering MT5ForSequenceClassification "
        "MT5ForTokenClassification MT5Model MT5Stack"
    ),
    "nemotron": (
        "NemotronForCausalLM NemotronForQuestionAnswering NemotronForSequenceClassification "
        "NemotronForTokenClassification NemotronModel"
    ),
    "nomic_bert": (
        "NomicBertForMaskedLM NomicBertForSequenceClassification NomicBertForTokenClassification NomicBertModel"
    ),
    "olmo": "OlmoForCausalLM OlmoForSequenceClassification OlmoModel",
    "olmo2": "Olmo2ForCausalLM Olmo2ForSequenceClassification Olmo2Model",
    "olmo3": "Olmo3ForCausalLM Olmo3ForSequenceClassification Olmo3Model",
    "olmoe": "OlmoeForCausalLM OlmoeModel",
    "phi": "PhiForCausalLM PhiForSequenceClassification PhiForTokenClassification PhiModel",
    "phi3": "Phi3ForCausalLM Phi3ForSequenceClassification Phi3ForTokenClassification Phi3Model",
    "qwen2": (
        "JevForDecision Qwen2ForCausalLM Qwen2ForQuestionAnswering Qwen2ForSequenceClassification "
        "Qwen2ForTokenClassification Qwen2Model"
    ),
    "qwen2_moe": (
        "Qwen2MoeForCausalLM Qwen2MoeForQuestionAnswering Qwen2MoeForSequenceClassification "
        "Qwen2MoeForTokenClassification Qwen2MoeModel"
    ),
    "qwen3": (
        "Qwen3ForCausalLM Qwen3ForQuestionAnswering Qwen3ForSequenceClassification Qwen3ForTokenClassification "
        "Qwen3Model"
    ),
    "qwen3_5": (
        "JevForDecision Qwen3_5ForConditionalGeneration Qwen3_5ForSequenceClassification "
        "Qwen3_5ForTokenClassification Qwen3_5Model"
    ),
    "qwen3_5_text": "JevForDecision Qwen3_5ForCausalLM Qwen3_5TextForSequenceClassification Qwen3_5TextModel",
    "qwen3_moe": (
        "Qwen3MoeForCausalLM Qwen3MoeForQuestionAnswering Qwen3MoeForSequenceClassification "
        "Qwen3MoeForTokenClassification Qwen3MoeModel"
    ),
    "qwen3_next": (
        "Qwen3NextForCausalLM Qwen3NextForQuestionAnswering Qwen3NextForSequenceClassification "
        "Qwen3NextForTokenClassification Qwen3NextModel"
    ),
    "resnet": "ResNetBackbone ResNetForImageClassification ResNetModel",
    "roberta": (
        "RobertaForCausalLM RobertaForMaskedLM RobertaForMultipleChoice RobertaForQuestionAnswering "
        "RobertaForSequenceClassification RobertaForTokenClassification RobertaModel"
    ),
    "roformer": (
        "RoFormerForCausalLM RoFormerForMaskedLM RoFormerForMultipleChoice RoFormerForQuestionAnswering "
        "RoFormerForSequenceClassification RoFormerForTokenClassification RoFormerModel"
    ),
    "rt_detr": "RTDetrDecoder RTDetrForObjectDetection RTDetrHybridEncoder RTDetrModel",
    "rt_detr_v2": "RTDetrV2Decoder RTDetrV2ForObjectDetection RTDetrV2HybridEncoder RTDetrV2Model",
    "seed_oss": (
        "SeedOssForCausalLM SeedOssForQuestionAnswering SeedOssForSequenceClassification "
        "SeedOssForTokenClassification SeedOssModel"
    ),
    "segformer": "SegformerForImageClassification SegformerForSemanticSegmentation SegformerModel",
    "siglip": "SiglipForImageClassification SiglipModel",
    "siglip_text_model": "SiglipTextModel",
    "siglip_vision_model": "SiglipVisionModel",
    "smollm3": (
        "SmolLM3ForCausalLM SmolLM3ForQuestionAnswering SmolLM3ForSequenceClassification "
        "SmolLM3ForTokenClassification SmolLM3Model"
    ),
    "smolvlm": "SmolVLMForConditionalGeneration SmolVLMModel",
    "stablelm": "StableLmForCausalLM StableLmForSequenceClassification StableLmForTokenClassification StableLmModel",
    "starcoder2": (
        "Starcoder2ForCausalLM Starcoder2ForSequenceClassification Starcoder2ForTokenClassification Starcoder2Model"
    ),
    "swin": "SwinBackbone SwinEncoder SwinForImageClassification SwinForMaskedImageModeling SwinModel",
    "t5": (
        "T5EncoderModel T5ForConditionalGeneration T5ForQuestionAnswering T5ForSequenceClassification "
        "T5ForTokenClassification T5Model T5Stack"
    ),
    "umt5": (
        "UMT5EncoderModel UMT5ForConditionalGeneration UMT5ForQuestionAnswering UMT5ForSequenceClassification "
        "UMT5ForTokenClassification UMT5Model UMT5Stack"
    ),
    "vit": "ViTForImageClassification ViTForMaskedImageModeling ViTModel",
    "wav2vec2": (
        "Wav2Vec2ForAudioFrameClassification Wav2Vec2ForCTC Wav2Vec2ForPreTraining "
        "Wav2Vec2ForSequenceClassification Wav2Vec2ForXVector Wav2Vec2Model"
    ),
    "wavlm": "WavLMForAudioFrameClassification WavLMForCTC WavLMForSequenceClassification WavLMForXVector WavLMModel",
    "whisper": (
        "WhisperDecoder WhisperEncoder WhisperForAudioClassification WhisperForCausalLM "
        "WhisperForConditionalGeneration WhisperModel"
    ),
    "xlm-roberta": (
        "XLMRobertaForCausalLM XLMRobertaForMaskedLM XLMRobertaForMultipleChoice XLMRobertaForQuestionAnswering "
        "XLMRobertaForSequenceClassification XLMRobertaForTokenClassification XLMRobertaModel"
    ),
}
